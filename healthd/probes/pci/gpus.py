"""Which NVIDIA GPUs are on the PCI bus, whether or not a driver for them is loaded."""

from __future__ import annotations

from pathlib import Path

from healthd.probes.sysfs import names_in, read_word

NVIDIA = "0x10de"
DISPLAY = "0x03"
"""Begins the class of GPUs: VGA controllers, and 3D controllers without an output."""


def nvidia_gpus(sys: Path = Path("/sys")) -> list[str]:
    """Their PCI addresses; none where there is no bus."""
    bus = f"{sys}/bus/pci/devices"
    return [pci for pci in names_in(bus) if _is_gpu(f"{bus}/{pci}")]


def _is_gpu(device: str) -> bool:
    try:
        return read_word(f"{device}/vendor") == NVIDIA and read_word(f"{device}/class").startswith(DISPLAY)
    except OSError:  # it has just left the bus
        return False
