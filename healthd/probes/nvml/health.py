"""
The GPUs as NVML sees them: turns the output of a child process into samples. Nothing is judged here.

Two probes share the child. `Nvml` has all that NVML reports of the GPUs. `NvmlPulse` has whether NVML answers at all,
which is a reading of its own: a sample that could not be taken is no evidence about the hardware.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Protocol

import msgspec

from healthd.core.diagnosis.readings import NODE, Reading, Sample
from healthd.core.diagnosis.signals.gpus.nvml import XIDS
from healthd.core.hang.gpus import GpuUse, GpuUses
from healthd.probes.nvml.inventory import parse_pci
from healthd.probes.nvml.process import ChildProcess
from healthd.probes.pace import pace

NOT_YET = "NVML has not answered yet"
PAUSED = "NVML is closed while the GPUs of this node are reset"
WITHOUT_LIBRARY = timedelta(hours=1)
"""How rarely a machine without NVML's library is tried: each try starts a process. A container never gets it later."""
_USE_LASTS = 5.0
"""Seconds after which the last answer about the use of the GPUs says nothing about now."""
_NO_LIBRARY = 12
"""NVML_ERROR_LIBRARY_NOT_FOUND."""

NO_ANSWER = "mute"
"""The state of a GPU that refuses every call, for another reason than a fault."""

Value = int | float | str
Links = dict[str, list[Value | None]]


class GpuAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The child's answer about one GPU. *pci* as NVML writes it, values by the names of their readings."""

    pci: str
    state: str = "ok"
    said: str = ""
    """NVML's words where the GPU is not well."""
    values: dict[str, Value] = {}
    links: Links = {}
    """By reading and number of the link. Null where it has none."""


class NvmlAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the child: a sample, or only *xids*, only *use*, or only *trouble*."""

    gpus: list[GpuAnswer] | None = None
    node: dict[str, Value] = {}
    unreadable: list[str] = []
    given: list[str] = []
    """What NVML should list, by the kernel's driver. Empty where that can not be known."""
    whole: bool = False
    """The answer has everything, not only what is read in every sample."""
    xids: dict[str, dict[str, int]] = {}
    """How many events occurred since the child began, by GPU and Xid."""
    trouble: str = ""
    code: int = 0
    use: dict[str, GpuUse] | None = None
    """How much each GPU was used since the child began (`child.use.Use`), summed up until *at*."""
    at: float = 0.0
    """By the monotonic clock."""


class HealthProcess(Protocol):
    """What this module uses of `process.Process`."""

    @property
    def responds(self) -> bool | None: ...

    @property
    def trouble(self) -> str: ...

    def read_answers(self) -> list[bytes]: ...

    def wait(self, seconds: float) -> None: ...

    def close(self) -> None: ...

    @property
    def is_running(self) -> bool: ...

    def rest(self, time: timedelta, *, unless: Callable[[], bool]) -> None: ...


def _unknown() -> bool:
    return False


def never_paused() -> bool:
    """For a machine whose GPUs nothing resets while they are watched."""
    return False


_decoder = msgspec.json.Decoder(NvmlAnswer)


class _XidCounts:
    """How often each GPU met each Xid, by all children together: one that starts counts from zero."""

    def __init__(self) -> None:
        self._totals: dict[str, Counter[str]] = {}
        self._of_child: Mapping[str, Mapping[str, int]] = {}

    def ingest(self, counts: Mapping[str, Mapping[str, int]]) -> None:
        """*counts*: those since the child began. Its first answer has none."""
        for pci, codes in counts.items():
            before, total = self._of_child.get(pci, {}), self._totals.setdefault(pci, Counter())
            total.update({code: max(often - before.get(code, 0), 0) for code, often in codes.items()})
        self._of_child = counts

    def of(self, pci: str) -> Mapping[str, int]:
        """The counts of one GPU, by Xid."""
        return self._totals.get(pci, {})


class Nvml:
    """All that NVML reports of the GPUs. Returns the same `Sample` object until the child has written new data."""

    source = "nvml"

    def __init__(
        self,
        process: HealthProcess | None = None,
        *,
        expected: int | None = None,
        has_driver: Callable[[], bool] = _unknown,
        is_paused: Callable[[], bool] = never_paused,
    ) -> None:
        """
        *expected*: how many GPUs the node should have, where the configuration sets that. *has_driver*: whether the
        kernel has NVIDIA's driver, as far as a cheap check shows it. Where the driver appears, NVML is called at once.
        *is_paused*: whether nothing may have a GPU open now, because they are being reset.
        """
        self._process: HealthProcess = process or ChildProcess()
        self._expected = expected
        self._has_driver = has_driver
        self._is_paused = is_paused
        self._lock = threading.Lock()
        self._gpus: dict[str, GpuAnswer] = {}
        self._node: dict[str, Value] = {}
        self._xids = _XidCounts()
        self._seen: set[str] = set()
        self._given: set[str] = set()
        self._last: Sample | None = None
        self._used: dict[str, GpuUse] = {}
        self._used_at = 0.0
        self._trouble = ""
        self._nameless: list[str] = []
        self._empty = NOT_YET

    @property
    def every(self) -> timedelta:
        """Collects what the child has written; this calls no driver."""
        return pace(timedelta(seconds=2), has_devices=self.may_have_devices)

    @property
    def may_have_devices(self) -> bool:
        """A GPU is or was there, or a child is running."""
        return bool(self._seen or self._given or self._process.is_running)

    def sample(self, now: datetime) -> Sample:
        """The child's last answer. An answer that cannot be parsed counts as none."""
        with self._lock:
            trouble = PAUSED if self._lets_go() else self._read()
            if trouble:
                self._last = None
                return Sample(source=self.source, at=now, trouble=trouble)
            if self._last is None:
                self._last = Sample(
                    source=self.source,
                    at=now,
                    readings=self._readings(),
                    unread=self._unread(),
                    empty=self._empty,
                )
            return self._last

    def responds(self) -> bool | None:
        """Whether NVML answers in time. None: not known yet."""
        with self._lock:
            if self._lets_go():
                return None
            self._read()
            return self._process.responds

    def use(self, now: datetime) -> GpuUses:
        """How much the GPUs were used, by the child's last answer. Empty: it says nothing, or not lately."""
        with self._lock:
            if self._lets_go() or self._read():
                return GpuUses(now)
            age = time.monotonic() - self._used_at
            return GpuUses(now - timedelta(seconds=age), self._used) if age <= _USE_LASTS else GpuUses(now)

    def wait(self, seconds: float) -> None:
        """Wait until the child has written something, or *seconds* have passed."""
        self._process.wait(seconds)

    def close(self) -> None:
        """End the child: an open driver prevents a GPU's reset. The next sample starts another."""
        with self._lock:
            self._process.close()

    def _lets_go(self) -> bool:
        """While it is paused no child has a GPU open, and none is started."""
        if not self._is_paused():
            return False
        if self._process.is_running:
            self._process.close()
        self._gpus, self._node, self._nameless, self._empty, self._last = {}, {}, [], NOT_YET, None
        self._process.rest(WITHOUT_LIBRARY, unless=lambda: not self._is_paused())
        return True

    def _read(self) -> str:
        """Take in what the child has written. Returns what keeps it from being read."""
        for line in self._process.read_answers():
            try:
                self._ingest(_decoder.decode(line))
            except (msgspec.DecodeError, ValueError) as error:
                self._trouble = f"the output of NVML's child cannot be parsed: {error}"
                self._last = None
        return self._trouble or self._process.trouble

    def _ingest(self, answer: NvmlAnswer) -> None:
        """Raises ValueError for an invalid address."""
        if answer.use is not None:
            self._used_at, self._used = answer.at, {parse_pci(pci): use for pci, use in answer.use.items()}
            return
        self._trouble, self._last = "", None
        if answer.trouble:  # NVML returns an error also where there is no GPU
            self._gpus, self._node, self._nameless, self._empty = {}, {}, [], answer.trouble
            if answer.code == _NO_LIBRARY and not self._seen and not self._expected:
                self._process.rest(WITHOUT_LIBRARY, unless=self._has_driver)
            return
        self._xids.ingest({parse_pci(pci): counts for pci, counts in answer.xids.items()})
        if answer.gpus is not None:
            reported = {parse_pci(gpu.pci): gpu for gpu in answer.gpus}
            self._gpus = {pci: gpu if answer.whole else self._completed(pci, gpu) for pci, gpu in reported.items()}
            self._node = {**answer.node, "nvml.gpus.unreadable": len(answer.unreadable)}
            self._seen |= self._gpus.keys()
            self._given = {parse_pci(pci) for pci in answer.given}
            count = answer.node.get("nvml.gpus", 0)
            self._nameless = answer.unreadable
            if count and not self._gpus:
                self._nameless = [f"NVML counts {count} GPUs and names none of them", *answer.unreadable[:1]]
            self._empty = "" if count or self._gpus else "NVML lists no GPU"

    def _completed(self, pci: str, gpu: GpuAnswer) -> GpuAnswer:
        """Adds the last values of what is read only now and then, but not for a GPU that answers nothing now."""
        before = self._gpus.get(pci)
        if before is None or not gpu.values:
            return gpu
        return msgspec.structs.replace(gpu, values=before.values | gpu.values, links=before.links | gpu.links)

    def _readings(self) -> list[Reading]:
        if not self._node:
            return []
        readings = [Reading(NODE, name, value) for name, value in self._node.items()]
        if self._expected is not None:
            readings.append(Reading(NODE, "nvml.gpus.expected", self._expected))
        known = sorted(self._seen | self._given)
        readings += [Reading(pci, "nvml.listed", "yes" if pci in self._gpus else "no") for pci in known]
        best = max(map(_active, self._gpus.values()), default=0)
        for pci, gpu in self._gpus.items():
            readings += _of_gpu(pci, gpu, best)
            counts = self._xids.of(pci)
            readings += [Reading(pci, f"nvml.xid.{code}", counts.get(code, 0)) for code in _codes(counts)]
        return readings

    def _unread(self) -> str:
        """GPUs that NVML counts and that do not answer."""
        unanswered = [
            f"{pci} refuses every question ({gpu.said})" for pci, gpu in self._gpus.items() if gpu.state == NO_ANSWER
        ]
        return "; ".join([*self._nameless, *unanswered])


class NvmlPulse:
    """Whether NVML answers in time: a driver that hangs gives no other reading, and that alone proves nothing."""

    source = "nvml-pulse"

    def __init__(self, nvml: Nvml) -> None:
        self._nvml = nvml

    @property
    def every(self) -> timedelta:
        """A running child is read often, or its silence proves nothing."""
        return pace(timedelta(seconds=1), has_devices=self._nvml.may_have_devices)

    def sample(self, now: datetime) -> Sample:
        """`nvml.responds`: yes or no; nothing before the first answer is due."""
        responds = self._nvml.responds()
        readings = [] if responds is None else [Reading(NODE, "nvml.responds", "yes" if responds else "no")]
        return Sample(source=self.source, at=now, readings=readings)


def _of_gpu(pci: str, gpu: GpuAnswer, most_active: int) -> list[Reading]:
    readings = [Reading(pci, "nvml.state", gpu.state)]
    readings += [Reading(pci, name, value) for name, value in gpu.values.items()]
    if gpu.values.get("nvml.mig") == "on":  # NVLinks are off then, as intended
        return readings
    for name, values in gpu.links.items():
        readings += [
            Reading(pci, name, value, f"nvlink {link}") for link, value in enumerate(values) if value is not None
        ]
    states = gpu.links.get("nvml.nvlink.state", [])
    up = [(link, int(state in _UP)) for link, state in enumerate(states) if state is not None]
    readings += [Reading(pci, "nvml.nvlink.up", is_up, f"nvlink {link}") for link, is_up in up]
    if up:
        readings.append(Reading(pci, "nvml.nvlink.active", _active(gpu)))
        readings.append(Reading(pci, "nvml.nvlink.active.peers", most_active))
    return readings


_UP = frozenset({"active", "sleep"})
"""A link that sleeps to save power wakes by itself."""


def _active(gpu: GpuAnswer) -> int:
    return sum(state in _UP for state in gpu.links.get("nvml.nvlink.state", []))


def _codes(counts: Mapping[str, int]) -> list[str]:
    """Codes that rules know are reported from the first sample on: a counter that appears with 1 did not grow."""
    return [*_XIDS, *sorted(counts.keys() - set(_XIDS))]


_XIDS = [str(code) for code in XIDS]
