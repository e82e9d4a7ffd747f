"""
For tests of the whole of `healthd run`: a folder for one run, a kernel log of its own, and lives of healthd in it.

The machine's GPUs are made up (a stand-in for the driver's library beneath the real binding); everything else is the
real program in a process of its own, started by its command line.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import select
import signal
import sys
import time
import uuid
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from healthd.clock import SystemClock
from healthd.cluster.embedded import EmbeddedCluster
from healthd.core.api import Recovery
from healthd.local.processes.marks import readable
from healthd.local.state.folder import database
from tests.standin.nvml import StandIn, built

T = TypeVar("T")
ROOT = Path(__file__).parents[2]
TRAINING = Path(__file__).with_name("training.py")
PATIENCE = 30.0
"""Seconds after which a test that waits has failed; none is expected to need a tenth of it."""
XID_79 = "NVRM: Xid (PCI:0000:{bus:02x}:00): 79, pid=1, GPU has fallen off the bus."
FIRST_BUS = 0x3B
CONFIG = """\
kernel_log: {{source: kmsg, path: "{log}", trust_user_space: {trust}}}
recovery: {{fault_window: {window}, backoff_max: 50ms, look_every: 50ms, grace: {grace}}}
log: {{format: {format}, level: {level}}}
{more}
"""


class KernelLogFifo:
    """A kernel log behind a path. Like the kernel's own it is handed whole to every reader that opens it anew."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._records: list[bytes] = []
        self._fd = -1
        self.rewind()

    def rewind(self) -> None:
        """A new reader is about to open it."""
        self.close()
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()
        os.mkfifo(self._path)
        self._fd = os.open(self._path, os.O_RDWR | os.O_NONBLOCK)
        packets = fcntl.fcntl(self._fd, fcntl.F_GETFL) | os.O_DIRECT  # one record a read
        fcntl.fcntl(self._fd, fcntl.F_SETFL, packets)
        for record in self._records:
            os.write(self._fd, record)

    def write(self, text: str, *, ago: float = 0) -> None:
        """One record of the kernel; of so many seconds ago."""
        stamp = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000 - round(ago * 1e6)
        record = f"3,{len(self._records)},{stamp},-;{text}\n".encode()
        self._records.append(record)
        os.write(self._fd, record)

    def close(self) -> None:
        """Let go of the pipe."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class HealthdProcess:
    """One process of healthd, and what it says on standard error."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.said: list[dict[str, Any]] = []
        """Its log, as far as it was read."""
        self.other = ""
        """Lines that are no log events."""

    async def says(self, event: str, **fields: str) -> dict[str, Any]:
        """The next event of this name with these fields, once it is said."""
        with self._patiently(f"{event} {fields}"):
            async with asyncio.timeout(PATIENCE):
                while (line := await self._next()) is not None:
                    if line.get("event") == event and fields.items() <= line.items():
                        return line
        raise AssertionError(f"healthd ended without saying {event} {fields}: {self.log}")

    async def tells(self, words: str) -> str:
        """The next line for people with these *words* in it, once it is printed."""
        seen = len(self.other)
        with self._patiently(words):
            async with asyncio.timeout(PATIENCE):
                while await self._next() is not None:
                    if words in self.other[seen:]:
                        return next(line for line in self.other[seen:].splitlines() if words in line)
        raise AssertionError(f"healthd ended without telling {words}: {self.log}")

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    async def ended(self) -> int:
        """Its exit code, once it has ended; negative: the signal that ended it."""
        with self._patiently("the end"):
            async with asyncio.timeout(PATIENCE):
                while await self._next() is not None:
                    pass
                return await self._process.wait()

    async def lives_until(self, happens: Coroutine[Any, Any, T]) -> T:
        """What *happens* answers; it is a failure when healthd ends before."""
        event, end = asyncio.ensure_future(happens), asyncio.ensure_future(self._process.wait())
        done, _ = await asyncio.wait({event, end}, timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
        end.cancel()
        if event in done:
            return event.result()
        event.cancel()
        await asyncio.gather(event, end, return_exceptions=True)
        self.signal(signal.SIGKILL)
        await self.ended()
        raise AssertionError(f"{'healthd ended' if done else 'nothing happened'}: {self.log}")

    @contextmanager
    def _patiently(self, what: str) -> Iterator[None]:
        try:
            yield
        except TimeoutError:
            raise AssertionError(f"waited in vain for {what}: {self.log}") from None

    @property
    def log(self) -> str:
        """All that it said, for people."""
        return "\n".join(["", *(json.dumps(line) for line in self.said), self.other])

    async def _next(self) -> dict[str, Any] | None:
        assert self._process.stderr is not None
        line = await self._process.stderr.readline()
        if not line:
            return None
        try:
            event: dict[str, Any] = json.loads(line)
        except ValueError:
            self.other += line.decode(errors="replace")
            return {}
        self.said.append(event)
        return event


class RunFolder:
    """The folder of one run, and everything in it that outlives a healthd."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = folder / "state"
        self.checkpoints = folder / "checkpoints"
        self.config = folder / "healthd.yaml"
        self.kernel_log = KernelLogFifo(folder / "kmsg")
        self.configure()
        self.mark = f"E2E_MARK={uuid.uuid4()}"
        """In the environment of everything that is started here."""
        self._driver = StandIn(built(), folder / "driver")
        self.install_gpus("0000")
        os.mkfifo(folder / "gate")
        self._gate = -1
        os.mkfifo(folder / "witness")
        self._witness = os.open(folder / "witness", os.O_RDONLY | os.O_NONBLOCK)
        self._heard = b""

    def configure(
        self,
        *,
        kernel_log: str = "",
        trust_user_space: bool = False,
        grace: str = "300ms",
        fault_window: str = "50ms",
        sentences: bool = False,
        more: str = "",
    ) -> None:
        """Write the configuration file of the next life, which says what happens as events or in *sentences*."""
        form = {"format": "auto", "level": "info"} if sentences else {"format": "json", "level": "debug"}
        log, trust = kernel_log or self.folder / "kmsg", str(trust_user_space).lower()
        said = CONFIG.format(log=log, trust=trust, grace=grace, window=fault_window, more=more, **form)
        self.config.write_text(said)

    def install_gpus(self, domain: str) -> None:
        """Eight of them, in this PCI domain."""
        self._driver.play("gpus 8", f"first {domain} {FIRST_BUS:x}")

    def close(self) -> None:
        """Let go of the pipes."""
        self.kernel_log.close()
        os.close(self._witness)
        if self._gate >= 0:
            os.close(self._gate)

    @asynccontextmanager
    async def life(
        self,
        *options: str,
        command: Sequence[str] = (),
        program: Sequence[str] = ("healthd.cli.main", "run"),
        prefix: Sequence[str] = (),
        environ: Mapping[str, str] | None = None,
    ) -> AsyncIterator[HealthdProcess]:
        """`healthd run` with two ranks of the training script, or of *command*; killed when the block ends."""
        self.kernel_log.rewind()
        name, value = self.mark.split("=")
        process = await asyncio.create_subprocess_exec(
            *[*prefix, sys.executable, "-m", *program, *self.arguments(*options), "--", *(command or self.training())],
            cwd=self.folder,
            env={**self._driver.environ, "PYTHONPATH": str(ROOT), name: value, **(environ or {})},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            limit=2**20,
        )
        life = HealthdProcess(process)
        try:
            yield life
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
            await life.ended()

    async def asks(self, *words: str) -> str:
        """What another command of healthd prints about the run."""
        process = await asyncio.create_subprocess_exec(
            *[sys.executable, "-m", "healthd.cli.main", *words],
            cwd="/",
            env={**self._driver.environ, "PYTHONPATH": str(ROOT)},
            stdout=asyncio.subprocess.PIPE,
        )
        printed, _ = await process.communicate()
        return printed.decode()

    def arguments(self, *options: str) -> list[str]:
        """Those of `healthd run`; later ones win."""
        usual = {"--nproc": "2", "--name": "gang", "--checkpoint": self.checkpoints, "--config": self.config}
        return [
            *(str(word) for pair in usual.items() for word in pair),
            "--state",
            str(self.state),
            "--quiet",
            *options,
        ]

    def training(self, *options: str) -> list[str]:
        """The command of the training script."""
        return [sys.executable, "-I", "-S", str(TRAINING), str(self.folder), *options]

    def break_gpu(self, slot: int, *, ago: float = 0) -> None:
        """What the driver says when a GPU falls off its bus."""
        self.kernel_log.write(XID_79.format(bus=FIRST_BUS + slot), ago=ago)

    def load_driver(self, *, ago: float) -> None:
        """What the driver says when it is loaded, which took a second."""
        self.kernel_log.write("nvidia-nvlink: Nvlink Core is being initialized, major device number 510", ago=ago)
        text = "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024"
        self.kernel_log.write(text, ago=ago - 1)

    def open_gate(self) -> None:
        """Let the training script go on to its end."""
        self._gate = os.open(self.folder / "gate", os.O_RDWR)

    async def all_wait(self, life: HealthdProcess, attempt: int, world: int = 2) -> None:
        """Return when every rank of *attempt* waits at the gate."""
        missing = {f"waits {rank} {attempt}" for rank in range(world)}
        while missing:
            missing.discard(await life.lives_until(self.hear()))

    async def hear(self) -> str:
        """The next line that a rank wrote into the witness."""
        while b"\n" not in self._heard:
            await readable(self._witness)
            if not (data := os.read(self._witness, 4096)):
                self._reopen_witness()
            self._heard += data
        line, self._heard = self._heard.split(b"\n", 1)
        return line.decode()

    def _reopen_witness(self) -> None:
        """A pipe that was left stays readable; a fresh descriptor of it sleeps until somebody comes."""
        left, self._witness = self._witness, os.open(self.folder / "witness", os.O_RDONLY | os.O_NONBLOCK)
        os.close(left)

    def is_silent(self) -> bool:
        """No process holds the witness: neither mark nor session nor name can hide one."""
        try:
            while data := os.read(self._witness, 4096):
                self._heard += data
        except BlockingIOError:
            return False
        return True

    def marked(self) -> list[int]:
        """The pids of all processes that were started here and still live."""
        return [pid for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))) if self._is_marked(pid)]  # noqa: PTH208 - names

    def _is_marked(self, pid: int) -> bool:
        try:
            return self.mark.encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            return False

    def journal(self) -> list[dict[str, Any]]:
        """What the ranks wrote."""
        path = self.folder / "journal"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def attempts(self) -> list[int]:
        """The attempts of which a rank ran, in the order in which they first wrote."""
        return list(dict.fromkeys(line["attempt"] for line in self.journal()))

    def starts(self) -> list[tuple[int, int]]:
        """Each attempt, with the step that rank 0 resumed from."""
        begun = [line for line in self.journal() if line["what"] == "from" and line["rank"] == 0]
        return [(line["attempt"], line["step"]) for line in begun]

    @contextmanager
    def cluster(self) -> Iterator[EmbeddedCluster]:
        """The store that the lives share."""
        path = database(self.state)
        with EmbeddedCluster.open(path, clock=SystemClock(), new_uid=lambda: str(uuid.uuid4())) as cluster:
            yield cluster

    async def recoveries(self) -> list[Recovery]:
        """Oldest first."""
        with self.cluster() as cluster:
            found = (await cluster.list(Recovery)).items
        return sorted(found, key=lambda recovery: recovery.spec.first_attempt)

    def check_writers(self) -> None:
        """Never two at a time: no lock was found taken, and no attempt wrote after a later one had begun."""
        journal = self.journal()
        attempts = [line["attempt"] for line in journal]

        assert [line for line in journal if line["what"] == "double"] == []
        assert attempts == sorted(attempts)
        assert self.is_silent()
        self.check_gone()

    def check_gone(self) -> None:
        """
        Nothing that was started here is left. What was killed may need a moment for its end on a busy machine; ranks
        have none: `is_silent` asks about them at once.
        """
        for pid in self.marked():
            process = _described(pid)
            with contextlib.suppress(ProcessLookupError):
                pidfd = os.pidfd_open(pid)
                ended, _, _ = select.select([pidfd], [], [], PATIENCE)
                os.close(pidfd)
                assert ended, f"still there: {process}"


def _described(pid: int) -> str:
    """What is known of a process: its command line and its state."""
    words = []
    for name in ("cmdline", "status"):
        with contextlib.suppress(OSError):
            words.append(Path(f"/proc/{pid}/{name}").read_text(errors="replace").replace("\0", " "))
    return f"{pid}: {' '.join(words)}"
