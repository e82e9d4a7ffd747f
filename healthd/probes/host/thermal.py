"""
The heat of everything but GPUs: how close sensors are to their critical limit, throttled processors, failed fans.

Sensors of network devices are not read: reading one is a command to the card's firmware, and some firmwares write a
line to the kernel log for each read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

from healthd.core.diagnosis.readings import NODE, Reading, Sample
from healthd.probes.sysfs import names_in, pci_of, read_number, read_word

_LEFT_ALONE = re.compile(r"mlx|bnxt|i40e|ice|nfp|ib_")
_FAN_FAULT = re.compile(r"fan\d+_fault")
_LIMIT = re.compile(r"temp\d+_crit")
_SANE_LIMITS = range(40, 151)
"""Degrees that a manufacturer may mean by critical. Chips without a configured limit report 0, 255 or nonsense."""
_SANE = range(-40, 200)


class Thermal:
    """
    `thermal.margin_c`: degrees below the critical limit of a sensor, of the device that it is part of, or of the node.
    `thermal.fan_fault`: `yes` or `no`. `thermal.throttled_ms`: the time since boot for which a processor's own
    protection slowed it down; in a pod only where the host's /sys is mounted, as newer container runtimes mask it.
    """

    source = "thermal"
    every = timedelta(minutes=1)

    def __init__(self, sys: Path = Path("/sys")) -> None:
        self._sys = sys
        self._packages: dict[str, str] = {}
        """By package: the folder of one of its cores."""

    def sample(self, now: datetime) -> Sample:
        """Some sensors query their device: an NVMe disk that hangs blocks the caller."""
        return Sample(source=self.source, at=now, readings=[*self._processors(), *self._sensors()])

    def _processors(self) -> Iterator[Reading]:
        if not self._packages:
            self._packages = _find_packages(f"{self._sys}/devices/system/cpu")
        for package, folder in self._packages.items():
            if (time := read_number(f"{folder}/thermal_throttle/package_throttle_total_time_ms")) is not None:
                yield Reading(NODE, "thermal.throttled_ms", time, f"package {package}")

    def _sensors(self) -> Iterator[Reading]:
        root = f"{self._sys}/class/hwmon"
        for chip in names_in(root):
            folder = f"{root}/{chip}"
            name = read_word(f"{folder}/name")
            if name and not _LEFT_ALONE.match(name):
                yield from _read_chip(folder, name)


def _find_packages(root: str) -> dict[str, str]:
    packages: dict[str, str] = {}
    for cpu in names_in(root):
        if package := read_word(f"{root}/{cpu}/topology/physical_package_id"):
            packages.setdefault(package, f"{root}/{cpu}")
    return packages


def _read_chip(folder: str, name: str) -> Iterator[Reading]:
    device = pci_of(os.path.realpath(folder)) or NODE
    for file in names_in(folder):
        if _FAN_FAULT.fullmatch(file) and (fault := read_number(f"{folder}/{file}")) is not None:
            yield Reading(device, "thermal.fan_fault", "yes" if fault else "no", f"{name} {file.partition('_')[0]}")
        elif _LIMIT.fullmatch(file) and (margin := _margin(f"{folder}/{file.removesuffix('_crit')}")) is not None:
            sensor = file.removesuffix("_crit")
            label = read_word(f"{folder}/{sensor}_label")[:64] or sensor
            yield Reading(device, "thermal.margin_c", margin, f"{name} {label}")


def _margin(sensor: str) -> float | None:
    """Limits and temperatures are in thousandths of a degree."""
    limit, heat = read_number(f"{sensor}_crit"), read_number(f"{sensor}_input")
    if limit is None or heat is None or limit // 1000 not in _SANE_LIMITS or heat // 1000 not in _SANE:
        return None
    return (limit - heat) / 1000
