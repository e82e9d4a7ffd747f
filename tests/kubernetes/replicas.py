"""Replicas of `healthd controller` as it is shipped, each a process of its own behind a proxy of its own."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from tests.kubernetes.api_proxy import ApiProxy, Watcher
from tests.lab.api import ApiError
from tests.lab.control_plane import ControlPlane
from tests.lab.programs import wait_until

LEASE = "/apis/coordination.k8s.io/v1/namespaces/healthd-system/leases/healthd-controller"
PATIENCE = 60.0
CONFIG: Mapping[str, Any] = {
    "leader": {"lease": "3s"},
    "breaker": {"restarts": 1000, "unhealthy_share": 1},
    "recovery": {
        "confirm_after": "1s",
        "look_every": "1s",
        "fault_window": "500ms",
    },
    "log": {"format": "json", "level": "info"},
}
"""The configuration of a controller unless a test says otherwise: no time is lost, and it restarts whatever breaks."""
_TAIL = 60


class Replica:
    """One process."""

    def __init__(self, name: str, proxy: ApiProxy, log: Path) -> None:
        self.name = name
        self.proxy = proxy
        self.log = log
        self._process: asyncio.subprocess.Process | None = None

    async def start(self, control_plane: ControlPlane, token: str, config: Path, server: str) -> None:
        """Run it as the user of *token*, with the API server at the URL *server*."""
        kubeconfig = self.log.with_suffix(".kubeconfig")
        control_plane.write_kubeconfig(kubeconfig, token, server=server)
        command = [sys.executable, "-m", "healthd.cli.main", "controller"]
        arguments = [f"--kubeconfig={kubeconfig}", f"--config={config}"]
        environment = {**os.environ, "POD_NAME": self.name}
        with self.log.open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                *command, *arguments, env=environment, stdout=log, stderr=log
            )

    @property
    def is_alive(self) -> bool:
        """It has not ended."""
        return self._process is not None and self._process.returncode is None

    def kill(self) -> None:
        """As the kernel does it when memory runs out. What it has sent and did not arrive never does."""
        self.proxy.close()
        self._signal(signal.SIGKILL)

    def freeze(self) -> None:
        """It stands still in the middle of whatever it does."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """It goes on, and has noticed nothing."""
        self._signal(signal.SIGCONT)

    async def stop(self) -> int:
        """Ask it to end; its exit code."""
        self.thaw()
        self._signal(signal.SIGTERM)
        return await self.ended()

    async def ended(self) -> int:
        """Its exit code, once it has ended."""
        assert self._process is not None
        async with asyncio.timeout(PATIENCE):
            return await self._process.wait()

    def tail(self) -> str:
        """The end of its log."""
        lines = self.log.read_text(errors="replace").splitlines()[-_TAIL:] if self.log.exists() else []
        return "\n".join([f"--- {self.name}", *map(_shortened, lines)])

    async def says(self, event: str) -> None:
        """Return when it has logged something under this name."""
        await asyncio.to_thread(wait_until, f"{self.name} said {event}", lambda: self._has(event), limit=PATIENCE)

    def _has(self, event: str) -> bool:
        return f'"event": "{event}"' in self.log.read_text() or f'"event":"{event}"' in self.log.read_text()

    def _signal(self, number: int) -> None:
        if self.is_alive and self._process is not None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)


class Replicas:
    """All replicas of a test."""

    def __init__(self, control_plane: ControlPlane, token: str, folder: Path, stack: AsyncExitStack) -> None:
        self._control_plane = control_plane
        self._token = token
        self._folder = folder
        self._stack = stack
        self.all: list[Replica] = []

    async def add(self, count: int = 1, *, direct: bool = False, **sections: Mapping[str, Any]) -> list[Replica]:
        """
        *count* more, that are up; *sections* of the configuration say what is different.

        A *direct* one has no proxy before it: this process would be too slow for what thousands of changes bring.
        """
        config = {name: {**CONFIG.get(name, {}), **sections.get(name, {})} for name in {**CONFIG, **sections}}
        file = self._folder / f"healthd-{len(self.all)}.yaml"
        file.write_text(json.dumps(config))
        added = [await self._start(file, direct) for _ in range(count)]
        async with asyncio.timeout(PATIENCE):
            for replica in added if not direct else ():
                await replica.proxy.stands_for_lease.wait()
        await self.leader()
        return added

    async def _start(self, config: Path, direct: bool) -> Replica:
        name = f"replica-{len(self.all)}"
        proxy = ApiProxy(self._control_plane)
        await self._stack.enter_async_context(proxy.served(self._control_plane.directory))
        replica = Replica(name, proxy, self._folder / f"{name}.log")
        self.all.append(replica)
        await replica.start(self._control_plane, self._token, config, self._control_plane.url if direct else proxy.url)
        return replica

    def watch(self, watcher: Watcher) -> None:
        """Let *watcher* see the writes of all."""
        for replica in self.all:
            replica.proxy.watch = watcher

    async def leader(self) -> Replica:
        """Who holds the lease, once somebody alive does."""
        async with asyncio.timeout(PATIENCE):
            while True:
                holder = await asyncio.to_thread(self._holder)
                if found := next((each for each in self.all if each.name == holder and each.is_alive), None):
                    return found
                await asyncio.sleep(0.05)

    def _holder(self) -> str:
        try:
            spec = self._control_plane.api.get(LEASE)["spec"]
        except ApiError:
            return ""
        return str(spec.get("holderIdentity") or "").partition("_")[0]

    async def stop(self) -> None:
        """End all that still run."""
        for replica in self.all:
            if replica.is_alive:
                await replica.stop()

    def describe(self) -> str:
        """The end of every log."""
        return "\n".join(replica.tail() for replica in self.all)


@asynccontextmanager
async def replicas_of(control_plane: ControlPlane, token: str, folder: Path) -> AsyncIterator[Replicas]:
    """None to begin with; all end with the block. Each acts as the user of *token*."""
    async with AsyncExitStack() as stack:
        replicas = Replicas(control_plane, token, folder, stack)
        try:
            yield replicas
        finally:
            for replica in replicas.all:
                replica.proxy.release()
                replica.proxy.delay = 0
            await replicas.stop()


def _shortened(line: str) -> str:
    """Without what every line has."""
    try:
        said = json.loads(line)
    except ValueError:
        return line
    event = said.pop("event", "")
    when = said.pop("timestamp", said.pop("at", ""))
    said.pop("logger", None)
    return f"{when} {event} {' '.join(f'{key}={value}' for key, value in said.items())}"
