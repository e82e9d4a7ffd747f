"""Builds a /sys in a folder: PCI functions below bridges, RDMA devices with their ports, network interfaces."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

COUNTERS = ("symbol_error", "link_downed", "port_rcv_errors", "port_xmit_discards", "port_xmit_data")
HW_COUNTERS = ("out_of_sequence", "np_cnp_sent", "local_ack_timeout_err", "lifespan")


class Sysfs:
    """One machine's tree below *root*. Addresses name functions: `0000:5c:00.0`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for folder in ("class/infiniband", "class/net", "bus/pci/devices", "devices"):
            (root / folder).mkdir(parents=True)

    def function(self, pci: str, below: str = "pci0000:00", **files: str) -> Path:
        """A PCI function below the bridges *below*, given as words with `/` between them."""
        folder = self.root / "devices" / below / pci
        write(folder, {"vendor": "0x15b3", "device": "0x1021", "class": "0x020700", **files})
        link(self.root / "bus/pci/devices" / pci, folder)
        return folder

    def gpu(self, pci: str, below: str = "pci0000:00") -> Path:
        """One of NVIDIA's."""
        return self.function(pci, below, vendor="0x10de", device="0x2330", **{"class": "0x030200"})

    def rdma(
        self,
        name: str,
        pci: str,
        *,
        below: str = "pci0000:00",
        link_layer: str = "InfiniBand",
        driver: str = "mlx5_core",
        board_id: str = "MT_0000000838",
        parent: str = "",
        counters: bool = True,
    ) -> Path:
        """A device with one active port, whose folder is answered."""
        function = self._function_of(pci, below)
        link(function / "driver", made(self.root / "bus/pci/drivers" / driver))
        if parent:
            link(function / "physfn", self._function_of(parent, below))
        device = function / "infiniband" / name
        write(device, {"board_id": board_id, "fw_ver": "28.39.1002", "hca_type": "MT4129"})
        link(device / "device", function)
        link(self.root / "class/infiniband" / name, device)
        port = device / "ports" / "1"
        write(port, {"link_layer": link_layer, "rate": "400 Gb/sec (4X NDR)"})
        set_link(port, "4: ACTIVE", "5: LinkUp")
        if counters:
            write(port / "counters", dict.fromkeys(COUNTERS, "0"))
            write(port / "hw_counters", dict.fromkeys(HW_COUNTERS, "0"))
        return port

    def net(self, name: str, pci: str, *, below: str = "pci0000:00", **files: str) -> Path:
        """An Ethernet interface of a function."""
        function = self._function_of(pci, below)
        folder = function / "net" / name
        usual = {"type": "1", "dev_port": "0", "operstate": "up", "speed": "400000", "flags": "0x1003"}
        counted = {"carrier_changes": "1", "carrier_up_count": "1", "carrier_down_count": "0"}
        write(folder, {**usual, **counted, **files})
        write(folder / "statistics", {"rx_crc_errors": "0", "rx_missed_errors": "0", "tx_carrier_errors": "0"})
        link(folder / "device", function)
        link(self.root / "class/net" / name, folder)
        return folder

    def unplug(self, name: str) -> None:
        """The RDMA device *name* goes away."""
        entry = self.root / "class/infiniband" / name
        shutil.rmtree(entry.resolve())
        entry.unlink()

    def _function_of(self, pci: str, below: str) -> Path:
        folder = self.root / "devices" / below / pci
        return folder if folder.exists() else self.function(pci, below)


def set_link(port: Path, state: str, phys_state: str) -> None:
    """What the kernel says of a port: `1: DOWN`, `2: Polling`."""
    write(port, {"state": state, "phys_state": phys_state})


def write(folder: Path, files: dict[str, str]) -> None:
    """Files as the kernel shows them, with a line's end."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(f"{text}\n")


def made(folder: Path) -> Path:
    """The folder, which is there now."""
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def link(at: Path, to: Path) -> None:
    """As in /sys, relative: the tree may be mounted anywhere."""
    at.parent.mkdir(parents=True, exist_ok=True)
    if not at.is_symlink():
        at.symlink_to(os.path.relpath(to, at.parent))
