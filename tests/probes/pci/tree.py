"""Lays a PCI bus into a folder as sysfs shows it: a GPU, a network device and a disk behind one PCIe switch."""

from __future__ import annotations

import shutil
from pathlib import Path

ROOT_PORT = "0000:00:01.0"
UPSTREAM = "0000:01:00.0"
ABOVE_GPU = "0000:02:00.0"
ABOVE_NIC = "0000:02:01.0"
ABOVE_DISK = "0000:02:02.0"
GPU = "0000:03:00.0"
NIC = "0000:04:00.0"
DISK = "0000:05:00.0"
VIRTUAL_NIC = "0000:04:00.1"

BRIDGE_CLASS, GPU_CLASS, NIC_CLASS, DISK_CLASS = "0x060400", "0x030200", "0x020700", "0x010802"
NVIDIA, MELLANOX, SAMSUNG, BROADCOM = "0x10de", "0x15b3", "0x144d", "0x1000"


class PciTree:
    """A fake /sys with a bus of which every part can be changed."""

    def __init__(self, sys: Path) -> None:
        self.sys = sys
        self._devices = sys / "bus" / "pci" / "devices"
        self._devices.mkdir(parents=True)
        self._paths: dict[str, Path] = {}

    def add(
        self, address: str, kind: str, vendor: str, *, below: str = "", width: int = 16, speed: str = "32.0"
    ) -> None:
        """A function with a trained link."""
        parent = self._paths[below] if below else self.sys / "devices" / "pci0000:00"
        path = self._paths[address] = parent / address
        path.mkdir(parents=True)
        (self._devices / address).symlink_to(path)
        (path / "config").write_bytes(bytes.fromhex(vendor[4:] + vendor[2:4]) + bytes(62))
        for name in ("current", "max"):
            self.put(address, f"{name}_link_width", str(width))
            self.put(address, f"{name}_link_speed", f"{speed} GT/s PCIe")
        self.put(address, "class", kind)
        self.put(address, "vendor", vendor)
        self.put(address, "aer_dev_correctable", "RxErr 0\nBadTLP 0\nBadDLLP 0\nNonFatalErr 0\nTOTAL_ERR_COR 0")
        self.put(address, "aer_dev_nonfatal", "TLP 0\nUnsupReq 0\nTOTAL_ERR_NONFATAL 0")
        self.put(address, "aer_dev_fatal", "DLP 0\nTOTAL_ERR_FATAL 0")

    def put(self, address: str, name: str, text: str) -> None:
        """Write one attribute."""
        path = self._paths[address] / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"{text}\n")

    def put_config(self, address: str, space: bytes) -> None:
        """Write the config space."""
        (self._paths[address] / "config").write_bytes(space)

    def drive(self, address: str, driver: str) -> None:
        """Bind a driver."""
        (self._paths[address] / "driver").symlink_to(self.sys / "bus" / "pci" / "drivers" / driver)

    def translate(self, address: str, domain: str) -> None:
        """Put a function behind an IOMMU."""
        group = self.sys / "kernel" / "iommu_groups" / "7"
        group.mkdir(parents=True)
        (group / "type").write_text(f"{domain}\n")
        (self._paths[address] / "iommu_group").symlink_to(group)

    def remove(self, address: str) -> None:
        """Take a function off the bus."""
        (self._devices / address).unlink()
        shutil.rmtree(self._paths.pop(address))


def a_bus(sys: Path) -> PciTree:
    """GPU, network device with a virtual function, and disk, all well."""
    tree = PciTree(sys)
    tree.add(ROOT_PORT, BRIDGE_CLASS, "0x8086")
    tree.add(UPSTREAM, BRIDGE_CLASS, BROADCOM, below=ROOT_PORT)
    for port in (ABOVE_GPU, ABOVE_NIC, ABOVE_DISK):
        tree.add(port, BRIDGE_CLASS, BROADCOM, below=UPSTREAM)
    tree.add(GPU, GPU_CLASS, NVIDIA, below=ABOVE_GPU)
    tree.add(NIC, NIC_CLASS, MELLANOX, below=ABOVE_NIC)
    tree.add(VIRTUAL_NIC, NIC_CLASS, MELLANOX, below=ABOVE_NIC, width=0)
    tree.add(DISK, DISK_CLASS, SAMSUNG, below=ABOVE_DISK, width=4, speed="16.0")
    tree.drive(GPU, "nvidia")
    tree.put(NIC, "infiniband/mlx5_0", "")
    tree.put(VIRTUAL_NIC, "infiniband/mlx5_1", "")
    tree.put(VIRTUAL_NIC, "physfn", "")
    return tree
