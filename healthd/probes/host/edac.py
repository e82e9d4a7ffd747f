"""Errors of the machine's own memory, as the kernel's EDAC drivers count them in sysfs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

from healthd.core.diagnosis.readings import NODE, Reading, Sample
from healthd.probes.sysfs import names_in, read_number, read_word


class Edac:
    """
    `edac.corrected` and `edac.uncorrected` errors since boot, by memory module where the driver knows it.

    The part is the module's label or number, or the memory controller for errors of unknown place. No readings without
    an EDAC driver, as in virtual machines.
    """

    source = "edac"
    every = timedelta(minutes=1)

    def __init__(self, sys: Path = Path("/sys")) -> None:
        self._folder = str(sys / "devices" / "system" / "edac" / "mc")

    def sample(self, now: datetime) -> Sample:
        """Reads three small files for each module."""
        controllers = [name for name in names_in(self._folder) if name.startswith("mc")]
        readings = [reading for name in controllers for reading in _read_controller(f"{self._folder}/{name}", name)]
        return Sample(source=self.source, at=now, readings=readings)


def _read_controller(folder: str, name: str) -> Iterator[Reading]:
    modules = [module for module in names_in(folder) if module.startswith(("dimm", "rank"))]
    for module in modules:
        label = read_word(f"{folder}/{module}/dimm_label")[:64]
        part = f"{name} {module}" + (f" ({label})" if label else "")
        yield from _counts(part, f"{folder}/{module}/dimm_ce_count", f"{folder}/{module}/dimm_ue_count")
    where = "noinfo_count" if modules else "count"
    yield from _counts(name, f"{folder}/ce_{where}", f"{folder}/ue_{where}")


def _counts(part: str, corrected: str, uncorrected: str) -> Iterator[Reading]:
    for name, path in (("edac.corrected", corrected), ("edac.uncorrected", uncorrected)):
        if (count := read_number(path)) is not None:
            yield Reading(NODE, name, count, part)
