"""
`--notify`: report a restart, a hold or the end of the run. A command gets the facts in its environment and as JSON on
its standard input. A URL gets them as the body of a POST.

Notifications are best effort. Only the end of the run waits for them, and only for a short time. A failure is logged
as one warning.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import uuid
from asyncio.subprocess import Process
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import structlog

from healthd.local.processes.marks import kill_marked
from healthd.local.processes.output import open_log
from healthd.local.processes.shim import MARK

log = structlog.get_logger(__name__)

LIMIT = 30.0
"""Seconds for one command or POST. After that it is killed."""
PATIENCE = 10.0
"""Seconds that the end of a run waits for notifications that are not sent yet."""
LONGEST_END = 5.0
"""Seconds. healthd does not wait longer for a process that a driver or a file system holds."""
QUEUE = 100
"""The longest queue of a slow target. When it is full, the oldest notifications are dropped."""
MOST_OUTPUT = 1 << 20
"""Bytes of a command's output that are kept. A command that prints more is killed."""
URLS = ("http://", "https://")

Facts = Mapping[str, str | int | float | None]
"""The facts of a notification, by name. `event` and `message` are always present."""


def why_no_target(target: str) -> str:
    """Why *target* can never be notified. Empty when it can."""
    if not target.strip():
        return "it names no command and no URL"
    scheme, is_url, _ = target.partition("://")
    if not is_url or not re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*", scheme):
        return ""
    if f"{scheme}://" not in URLS:
        return f"a URL begins with {' or '.join(URLS)}"
    return _why_no_url(target) if _host(target) else "the URL names no host"


def _why_no_url(text: str) -> str:
    try:
        _ = urlsplit(text).port
    except ValueError:
        return "this is no valid URL: look at its host and its port (0 to 65535)"
    return ""


class NotificationFailed(Exception):
    """A notification failed. The message says why."""


class Notifier:
    """Notifies *targets*, each independent of the others. The output of commands is appended to the file *output*."""

    def __init__(
        self,
        targets: Sequence[str],
        output: Path,
        environ: Mapping[str, str],
        *,
        limit: float = LIMIT,
        patience: float = PATIENCE,
    ) -> None:
        self._output = output
        self._environ = environ
        self._limit = limit
        self._patience = patience
        self._queues: dict[str, deque[Facts]] = {target: deque(maxlen=QUEUE) for target in targets}
        self._bells = {target: asyncio.Event() for target in self._queues}
        self._ending = False

    def notify(self, facts: Facts) -> None:
        """Queue *facts* for every target. Never waits, never fails."""
        for target, queue in self._queues.items():
            queue.append(facts)
            self._bells[target].set()

    @contextlib.asynccontextmanager
    async def sending(self) -> AsyncIterator[None]:
        """Send notifications while the block runs. At its end there is a short time for the rest."""
        tasks = {asyncio.create_task(self._serve(target), name=f"notify {target}"): target for target in self._queues}
        try:
            yield
            self._ending = True
            for bell in self._bells.values():
                bell.set()
            if tasks:
                _, late = await asyncio.wait(tasks, timeout=self._patience)
                self._log_unsent([target for task, target in tasks.items() if task in late])
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _log_unsent(self, late: Sequence[str]) -> None:
        """Log the targets that the end of the run does not wait for any longer."""
        for target in late:
            unsent = len(self._queues[target])
            rest = f"; {unsent} more that happened {'was' if unsent == 1 else 'were'} not sent" if unsent else ""
            why = f"it did not end within {self._patience:g} s after the end of the run{rest}"
            self._log_failed(target, why)

    def _log_failed(self, target: str, why: str) -> None:
        note = "" if self._ending else "the run goes on"
        log.warning("notify.failed", target=_spoken(target), why=why, note=note)

    async def _serve(self, target: str) -> None:
        queue, bell = self._queues[target], self._bells[target]
        while True:
            while queue:
                await self._send_one(target, queue.popleft())
            if self._ending:
                return
            bell.clear()
            await bell.wait()

    async def _send_one(self, target: str, facts: Facts) -> None:
        try:
            async with asyncio.timeout(self._limit):
                await (_post(target, facts) if target.startswith(URLS) else self._run(target, facts))
        except TimeoutError:
            self._log_failed(target, f"it took longer than {self._limit:g} s, and was ended")
        except (NotificationFailed, OSError, ValueError) as error:
            self._log_failed(target, str(error) or type(error).__name__)

    async def _run(self, command: str, facts: Facts) -> None:
        """Run *command* in a shell. Raises Failed, OSError. A command that does not end in time is killed."""
        given, mark = os.memfd_create("healthd-notify"), f"notify-{uuid.uuid4()}"
        output = _Output(open_log(self._output))
        try:
            os.pwrite(given, body(facts), 0)  # not a pipe: the command does not have to read it
            process = await _started(
                mark,
                "/bin/sh",
                "-c",
                command,
                stdin=given,
                stdout=output.pipe,
                stderr=output.pipe,
                env={**self._environ, **variables(facts), MARK: mark},
            )
            output.listen()
            try:
                await process.wait()
            finally:
                await _end(process, mark)
        finally:
            output.close()
            os.close(given)
        if output.is_too_much:
            raise NotificationFailed(
                f"it printed more than {MOST_OUTPUT >> 20} MiB, and was ended; the first are in {self._output}"
            )
        if process.returncode:
            raise NotificationFailed(f"it {_how_it_ended(process.returncode)}; what it printed is in {self._output}")


class _Output:
    """
    Writes the output of a command to the open *file*, up to a limit. Then it closes the pipe, which ends the command.
    """

    def __init__(self, file: int) -> None:
        self._file = file
        self._reading, self.pipe = os.pipe()
        os.set_blocking(self._reading, False)
        self._left = MOST_OUTPUT
        self.is_too_much = False

    def listen(self) -> None:
        """Start to read when the command has the other end of the pipe."""
        os.close(self.pipe)
        self.pipe = -1
        asyncio.get_running_loop().add_reader(self._reading, self._take)

    def close(self) -> None:
        """
        Read what is in the pipe now, and no more: processes that the command left behind may still hold the pipe.
        """
        while self._reading >= 0 and self._take():
            pass
        self._hang_up()
        os.close(self._file)
        if self.pipe >= 0:
            os.close(self.pipe)

    def _take(self) -> bool:
        try:
            data = os.read(self._reading, 1 << 16)
        except BlockingIOError:
            return False
        os.write(self._file, data[: self._left])
        self.is_too_much = len(data) > self._left
        self._left -= min(len(data), self._left)
        if not data or self.is_too_much:
            self._hang_up()
        return bool(data)

    def _hang_up(self) -> None:
        if self._reading >= 0:
            asyncio.get_running_loop().remove_reader(self._reading)
            os.close(self._reading)
            self._reading = -1


def _how_it_ended(code: int) -> str:
    return f"ended with exit code {code}" if code > 0 else f"was killed by signal {-code}"


def _spoken(target: str) -> str:
    """*target* without its secrets: the path and the user of a URL are often its password."""
    if not target.startswith(URLS):
        return target
    return f"{target.partition('://')[0]}://{_host(target)}/…"


def _host(url: str) -> str:
    """The host and the port of *url*, also where they are not valid."""
    return re.split(r"[/?#]", url.partition("://")[2], maxsplit=1)[0].rpartition("@")[2]


async def _started(mark: str, *command: str, **options: Any) -> Process:
    """
    A process in a session of its own. One that is cancelled while it starts is ended with all that it has started by
    then: asyncio would end the shell alone.
    """
    starting = asyncio.create_task(asyncio.create_subprocess_exec(*command, start_new_session=True, **options))
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        await _end(await starting, mark)
        raise


async def _end(process: Process, mark: str) -> None:
    """
    Kill what is left of *process*, and the processes that it started.

    When it did not end in time, the processes with *mark* are killed in every session.
    """
    in_time = process.returncode is not None
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await asyncio.shield(process.wait())
    if not in_time:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LONGEST_END):
                await kill_marked(mark)


async def _post(url: str, facts: Facts) -> None:
    """
    Send *facts* to *url*. Raises NotificationFailed.

    Redirects are not followed: what answers behind one, such as a page to sign in, has not taken the facts.
    """
    import aiohttp  # imported here: few runs post, and the import takes 0.1 s

    from healthd.http_errors import why_failed

    headers = {"Content-Type": "application/json"}
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.post(url, data=body(facts), headers=headers, allow_redirects=False) as answer,
        ):
            if answer.status >= 400:
                raise NotificationFailed(f"the server answered {answer.status} {answer.reason}")
            if answer.status >= 300:
                raise NotificationFailed(
                    f"the server answered {answer.status}, which leads to another address: use that"
                )
    except TimeoutError:
        raise
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise NotificationFailed(why_failed(error)) from None


def body(facts: Facts) -> bytes:
    """*facts* as JSON, on one line."""
    return json.dumps(facts).encode() + b"\n"


def variables(facts: Facts) -> dict[str, str]:
    """*facts* as environment variables: `HEALTHD_EVENT`, …. Unknown facts are not set."""
    variables = {f"HEALTHD_{name.upper()}": str(value) for name, value in facts.items() if value is not None}
    return {name: value.replace("\0", "") for name, value in variables.items()}
