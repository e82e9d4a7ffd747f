"""One machine with ports: names, and the eyes that look at it."""

from __future__ import annotations

import errno
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from healthd.core.diagnosis.readings import Sample
from healthd.probes.sysfs import read_text

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)
NIC = "0000:5c:00.0"
VIRTUAL = "0000:5c:00.2"


def reported(sample: Sample, device: str = NIC, part: str = "port 1") -> dict[str, float | str]:
    """What a sample says of one port, by name."""
    return {r.name: r.value for r in sample.readings if (r.device, r.part) == (device, part)}


class Disk:
    """Reads the tree, except files whose names are in *refused*; keeps what was asked."""

    def __init__(self, *refused: str) -> None:
        self.refused = set(refused)
        self.asked: list[str] = []

    def __call__(self, path: str) -> str:
        name = Path(path).name
        self.asked.append(name)
        if name in self.refused:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)
        return read_text(path)
