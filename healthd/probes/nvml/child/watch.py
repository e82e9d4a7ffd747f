"""
The child that calls NVML for ever: `watch.py EVERY WHOLE DEADLINE ANEW USE ROOT`, started by path.

A sick driver never answers, so its caller must be a process that can be lost. Each line that it writes is either the
monotonic time at which it began a call (the parent counts from there) or a JSON object with the answers. It samples
every EVERY seconds, everything every WHOLE seconds, how much the GPUs are used every USE seconds (0: never), and writes
an Xid event when it comes. While a GPU is not well, NVML is initialised anew every ANEW seconds, because the GPU may
have been reset. For what that can not repair, a new process is needed: the child writes the reason, and ends. DEADLINE:
the seconds after which an orphan gives up. ROOT: where /proc and /dev are.

Nothing but the standard library, the binding and its neighbours is imported: no asyncio, no msgspec.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any

import pynvml

sys.path.append(os.path.abspath(f"{__file__}/../../../../.."))  # noqa: PTH100 - pathlib costs memory

from healthd.probes.nvml.child import symbols
from healthd.probes.nvml.child.gpu import OK, NvmlGpu, absent, short
from healthd.probes.nvml.child.use import UseSums

_MOST_EVENTS = 100
"""Between two samples. Further events of the driver are not read, so that a storm costs nothing."""
_GRACE = 5
"""Seconds beyond the deadline after which an orphan that hangs ends by itself."""


class Session:
    """NVML, initialised: its GPUs, and the Xid events that it reported since the process began."""

    def __init__(self, anew: float, root: str) -> None:
        self._anew = anew
        self._root = root
        self._given: list[str] = []
        self._absent: list[dict[str, Any]] = []
        self._gpus: list[NvmlGpu] = []
        self._events: Any = None
        self._known: dict[int, str] = {}
        self._names: dict[int, str] = {}
        self._unreadable: list[str] = []
        self._node: dict[str, float | str] = {}
        self._began = 0.0
        self._is_well = True
        self.xids: dict[str, dict[str, int]] = {}

    @property
    def gpus(self) -> list[NvmlGpu]:
        """Those that NVML gives a handle for."""
        return self._gpus

    def begin(self) -> None:
        """Initialise NVML. Raises NVMLError."""
        symbols.initialise()
        self._began = time.monotonic()
        count = symbols.count()
        self._node = {"nvml.gpus": count, **_driver()}
        self._name(count)
        self._events = self._listen()

    def _name(self, count: int) -> None:
        """Find out which GPUs there are. For those that do not report who they are, work it out from the rest."""
        self._gpus, errors = [], {}
        for index in range(count):
            try:
                self._gpus.append(NvmlGpu(index))
            except pynvml.NVMLError as error:
                errors[index] = error
        named = {gpu.pci for gpu in self._gpus}
        hidden = {at for at, error in errors.items() if error.value == pynvml.NVML_ERROR_NO_PERMISSION}
        self._given = [] if hidden else given(self._root)
        self._known = {at: pci for at, pci in self._known.items() if pci not in named}
        strange = [at for at in errors if at not in self._known and at not in hidden]
        left = [pci for pci in self._given if pci not in named and pci not in self._known.values()]
        if len(left) == len(strange):
            self._known |= dict(zip(strange, left, strict=True))
        self._absent = [absent(pci, errors[at]) for at, pci in self._known.items() if at in errors]
        self._unreadable = [f"GPU {at}: {errors[at]}" for at in strange if at not in self._known]
        self._known |= {gpu.index: gpu.pci for gpu in self._gpus}

    def sample(self, *, whole: bool) -> dict[str, Any]:
        """All of NVML's values now. Raises NVMLError when it can not be initialised."""
        if not self._gpus or (not self._is_well and time.monotonic() - self._began > self._anew):
            self._end()
            self.begin()
            whole = True
        gpus = [gpu.sample(whole=whole) for gpu in self._gpus] + self._absent
        self._is_well = all(gpu["state"] == OK for gpu in gpus) and not self._unreadable
        answer = {"gpus": gpus, "node": self._node, "unreadable": self._unreadable, "given": self._given}
        return answer | {"whole": whole, "xids": self.xids}

    def wait(self, seconds: float) -> bool:
        """Wait, but not beyond an Xid event: then True, and it is counted in `xids`."""
        if self._events is None:
            time.sleep(seconds)
            return False
        try:
            event = pynvml.nvmlEventSetWait_v2(self._events, max(0, int(1000 * seconds)))
        except pynvml.NVMLError as error:
            if error.value != pynvml.NVML_ERROR_TIMEOUT:
                self._events = None  # every later wait would fail at once
            return False
        pci = self._names.get(int(pynvml.cast(event.device, pynvml.c_void_p).value or 0))
        if event.eventType != pynvml.nvmlEventTypeXidCriticalError or pci is None:
            return False
        counts = self.xids.setdefault(pci, {})
        counts[str(event.eventData)] = counts.get(str(event.eventData), 0) + 1
        return True

    def _listen(self) -> Any:
        self._names = {gpu.key: gpu.pci for gpu in self._gpus}
        try:
            events = pynvml.nvmlEventSetCreate()
        except pynvml.NVMLError:
            return None
        registered = [gpu.register(events, pynvml.nvmlEventTypeXidCriticalError) for gpu in self._gpus]
        return events if any(registered) else None

    def _end(self) -> None:
        if self._began:
            try:
                pynvml.nvmlShutdown()
            except pynvml.NVMLError:
                self._events = None


def _driver() -> dict[str, str]:
    try:
        return {"nvml.driver": symbols.text(pynvml.nvmlSystemGetDriverVersion())}
    except pynvml.NVMLError:
        return {}


def given(root: str) -> list[str]:
    """
    The GPUs that NVML should list here: the driver has them, and this process has access to their device node.

    In a container with some of a machine's GPUs, the others are no fault. The driver may hang during this call.
    """
    folder = f"{root}/proc/driver/nvidia/gpus"
    try:
        return [short(pci) for pci in sorted(os.listdir(folder)) if _is_given(root, f"{folder}/{pci}/information")]  # noqa: PTH208
    except OSError:
        return []


def _is_given(root: str, path: str) -> bool:
    with open(path) as lines:
        fields = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    has_node = os.path.exists(f"{root}/dev/nvidia{fields.get('Device Minor', ' none')}")  # noqa: PTH110
    return has_node and fields.get("GPU Excluded") != "Yes"


def watch(answers: int, session: Session, use: UseSums, *, every: float, whole_every: float, deadline: float) -> None:
    """Sample and write, until NVML can not be called, or the reader is gone."""
    whole_at = 0.0
    while True:
        began = _begin(answers, deadline)
        try:
            seen = session.sample(whole=began >= whole_at)
        except pynvml.NVMLError as error:
            _write_line(answers, json.dumps({"trouble": f"NVML: {error}", "code": error.value}))
            return
        signal.alarm(0)
        if seen["whole"]:
            whole_at = began + whole_every
        _write_line(answers, json.dumps(seen, separators=(",", ":")))
        _wait(session, answers, use, until=began + every, deadline=deadline)


def _begin(answers: int, deadline: float) -> float:
    """Write when a call begins, which may never return."""
    began = time.monotonic()
    _write_line(answers, f"{began:.3f}")
    signal.alarm(int(deadline) + _GRACE)  # its default ends a process that hangs in C code, also an orphan
    return began


def _wait(session: Session, answers: int, use: UseSums, *, until: float, deadline: float) -> None:
    """Until the next sample is due. Events are written at once, and how much the GPUs are used every now and then."""
    written = 0
    while (now := time.monotonic()) < until:
        left = min(until, use.due) - now
        if left <= 0:
            _write_use(session, answers, use, deadline)
        elif written >= _MOST_EVENTS:
            time.sleep(left)
        elif session.wait(left):
            written += 1
            _write_line(answers, json.dumps({"xids": session.xids}))


def _write_use(session: Session, answers: int, use: UseSums, deadline: float) -> None:
    at = _begin(answers, deadline)
    used = use.sample(session.gpus, at)
    signal.alarm(0)
    _write_line(answers, json.dumps({"use": used, "at": at}, separators=(",", ":")))


def _write_line(answers: int, line: str) -> None:
    """Raises BrokenPipeError when the parent is gone."""
    left = memoryview(f"{line}\n".encode())
    while left:
        left = left[os.write(answers, left) :]


def main() -> None:
    """Answers go to the original stdout. What the driver's library prints goes to stderr."""
    every, whole, deadline, anew, use = map(float, sys.argv[1:6])
    session = Session(anew, sys.argv[6])
    answers = os.dup(1)
    os.dup2(2, 1)
    try:
        watch(answers, session, UseSums(use), every=every, whole_every=whole, deadline=deadline)
    except BrokenPipeError:
        return


if __name__ == "__main__":
    main()
