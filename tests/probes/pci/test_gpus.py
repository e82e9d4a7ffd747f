"""Which NVIDIA GPUs are on the bus."""

from __future__ import annotations

from pathlib import Path

from healthd.probes.pci.gpus import nvidia_gpus
from tests.sysfs import Sysfs


def test_gpus_of_nvidia_are_seen_and_nothing_else(tmp_path: Path) -> None:
    sysfs = Sysfs(tmp_path / "sys")
    sysfs.gpu("0000:3b:00.0")
    sysfs.function("0000:3c:00.0", vendor="0x10de", **{"class": "0x030000"})
    sysfs.function("0000:3d:00.0", vendor="0x10de", **{"class": "0x068000"})  # an NVSwitch
    sysfs.function("0000:3e:00.0", vendor="0x1002", **{"class": "0x030000"})
    sysfs.function("0000:3f:00.0")

    assert nvidia_gpus(tmp_path / "sys") == ["0000:3b:00.0", "0000:3c:00.0"]


def test_a_machine_without_a_bus_has_none(tmp_path: Path) -> None:
    assert nvidia_gpus(tmp_path / "nothing") == []
