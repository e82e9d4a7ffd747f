"""
Which sources of a node are blind: they should have readings and have none. Pure.

An empty answer can look like good news. Whether a source should have readings is known from elsewhere: the
configuration, the PCI bus, the node's labels, and the readings that the same source had before, in this boot or an
earlier one. A blind source makes the verdict unknown. Blindness is no fault, so it never takes a node out of service.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType

from healthd.core.api import Node
from healthd.core.api.kubernetes.gpu_names import GPU_PREFIXES, LABEL_GPU_COUNT
from healthd.core.config import ProbesPolicy
from healthd.core.diagnosis.readings import Sample

NOT_BLIND: Mapping[str, str] = MappingProxyType({})
KERNEL_LOG = "kernel log"
"""The source name of kernel records, beside the sources of readings."""
GPU_SOURCES = frozenset({"nvml", "dcgm"})
"""They have readings wherever there is a GPU."""
_MAY_BE_ABSENT = frozenset({"dcgm"})
"""Third-party programs that a node without a GPU need not have. There, no answer is not a failure."""
PATIENCE = timedelta(minutes=1)
"""A source that answered in this boot may be silent for this long: drivers are reloaded, exporters restart."""

_BUS = "pcie"
_OURS = frozenset({"nvidia", "none"})
"""Drivers of GPUs on the bus that NVML should list. Other drivers, such as vfio-pci, hold GPUs for virtual machines."""


@dataclass(frozen=True, slots=True)
class _Silence:
    """A source has no readings since *since*. *is_empty*: this machine may not have what the source reads."""

    since: datetime
    why: str
    is_empty: bool


class Sources:
    """
    The last answer of each source of one node.

    *expected*: why a source should have readings, by source, where the configuration requires it. *patience*: see
    `PATIENCE`.
    """

    def __init__(self, expected: Mapping[str, str] = NOT_BLIND, *, patience: timedelta = PATIENCE) -> None:
        self._expected = dict(expected)
        self._patience = patience
        self._gpus: dict[str, str] = {}
        """Why there should be a GPU, by where that is known from."""
        self._answered: frozenset[str] = frozenset()
        self._answered_in_this_boot: frozenset[str] = frozenset()
        self._silences: dict[str, _Silence] = {}

    @property
    def answered(self) -> list[str]:
        """The sources that had readings since the last repair, for the next start of the agent."""
        return sorted(self._answered)

    def load(self, answered: Iterable[str], *, is_same_boot: bool) -> None:
        """Load what an earlier run stored."""
        self._answered |= frozenset(answered)
        if is_same_boot:
            self._answered_in_this_boot |= self._answered

    def begin(self, sources: Iterable[str], now: datetime) -> None:
        """These sources will be sampled from now on."""
        for source in sources:
            self._silences[source] = _Silence(now, "it was not read yet", is_empty=False)

    def ingest_sample(self, sample: Sample) -> None:
        """Record one sample."""
        if sample.source == _BUS and sample.readings:
            on_bus = sum(one.name == "pcie.gpu_driver" and one.value in _OURS for one in sample.readings)
            self._expect_gpus("bus", on_bus, f"{on_bus} NVIDIA GPUs are on the PCI bus")
        if sample.readings and not sample.empty:
            self._answered |= {sample.source}
            self._answered_in_this_boot |= {sample.source}
        why = sample.trouble or sample.unread
        if not why and (sample.empty or not sample.readings):
            why, is_empty = sample.empty or "it has no readings", True
        else:
            is_empty = sample.source in _MAY_BE_ABSENT
        if not why:
            self._silences.pop(sample.source, None)
            return
        before = self._silences.get(sample.source)
        self._silences[sample.source] = _Silence(before.since if before else sample.at, why, is_empty)

    def ingest_node(self, node: Node) -> None:
        """Read from the node's labels and resources whether it should have GPUs."""
        labelled = node.metadata.labels.get(LABEL_GPU_COUNT, "0")
        has_some = labelled.isdecimal() and labelled.strip("0") != ""
        offered = [
            name for name, amount in node.status.capacity.items() if name.startswith(GPU_PREFIXES) and amount != "0"
        ]
        self._expect_gpus("labels", has_some, f"the node's label {LABEL_GPU_COUNT} is {labelled}")
        self._expect_gpus("resources", bool(offered), f"the node offers {', '.join(sorted(offered))}")

    def settle(self) -> None:
        """The node was repaired and may now have fewer devices: what was there before does not count."""
        self._answered = self._answered_in_this_boot = frozenset()

    def blind(self, now: datetime) -> dict[str, str]:
        """Why each blind source has no readings, in the order of sources."""
        found = {}
        for source, silence in sorted(self._silences.items()):
            why = self._why_blind(source, silence)
            may_be_silent = (
                source in self._answered_in_this_boot and timedelta(0) <= now - silence.since < self._patience
            )
            if why and not may_be_silent:
                found[source] = why
        return found

    def _why_blind(self, source: str, silence: _Silence) -> str:
        if not silence.is_empty:
            return silence.why
        reasons = [self._expected.get(source, ""), *(self._gpus.values() if source in GPU_SOURCES else ())]
        reasons.append("it had some before" if source in self._answered else "")
        reason = next(filter(None, reasons), "")
        return f"{silence.why}, and {reason}" if reason else ""

    def _expect_gpus(self, by: str, is_so: float, why: str) -> None:
        if is_so:
            self._gpus[by] = why
        else:
            self._gpus.pop(by, None)


def expected_by(policy: ProbesPolicy) -> dict[str, str]:
    """Why sources should have readings, by source, as far as the configuration requires it."""
    return dict.fromkeys(GPU_SOURCES, f"probes.gpus is {policy.gpus}") if policy.gpus else {}


def blind_now(samples: Sequence[Sample], expected: Mapping[str, str] = NOT_BLIND) -> dict[str, str]:
    """Which sources are blind, judged by one sample of each."""
    sources = Sources(expected, patience=timedelta(0))
    for sample in samples:
        sources.ingest_sample(sample)
    return sources.blind(max(sample.at for sample in samples)) if samples else {}


def blindness_text(blind: Mapping[str, str]) -> str:
    """A sentence about what cannot be read, for a person."""
    return "; ".join(f"{source} cannot be read: {why}" for source, why in blind.items()) + "."
