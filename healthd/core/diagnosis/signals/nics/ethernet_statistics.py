"""
Rules about what mlx5 counts of its Ethernet ports: errors on the wire, modules, pause frames, the NIC's side of PCIe.

NVIDIA documents what these statistics mean, but no limits are published, so nothing here takes a node out of service.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial

from healthd.core.api.model import Blame
from healthd.core.diagnosis.signals.nics.ports import beyond_peers, port_rule
from healthd.core.diagnosis.signals.rule import Grows

_MINUTE = timedelta(minutes=1)
_HOUR = timedelta(hours=1)

_MLX5 = "Linux, Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst"

_BETTER_CABLE = "Clean, reseat or replace the cable."

_rule = partial(port_rule, "eth")

WIRE = (
    _rule(
        "symbol-errors",
        "rx_symbol_err_phy",
        Grows(by=121, within=_HOUR),
        "suspect",
        Blame.LINK,
        "frames are lost to symbol errors",
        f"{_MLX5}; limit as for InfiniBand's symbol errors",
        _BETTER_CABLE,
        same_as="nic-symbol-errors",
    ),
    _rule(
        "uncorrected-symbols",
        "rx_pcs_symbol_err_phy",
        Grows(by=121, within=_HOUR),
        "serious",
        Blame.LINK,
        "symbols arrive wrong beyond what error correction can mend",
        f"{_MLX5}: traffic is lost; limit as for InfiniBand's symbol errors",
        _BETTER_CABLE,
        same_as="nic-symbol-errors",
    ),
    _rule(
        "corrected-bits",
        "rx_corrected_bits_phy",
        beyond_peers(1e8),
        "record",
        Blame.LINK,
        "error correction mends far more than at the node's other ports",
        f"healthd: {_MLX5}; mending is normal at 100 Gb/s and more a lane",
        _BETTER_CABLE,
    ),
    _rule(
        "receive-discards",
        "rx_discards_phy",
        beyond_peers(1000),
        "suspect",
        Blame.NODE,
        "far more frames find no buffer in the NIC than at the node's other ports",
        f"healthd: {_MLX5}: this host takes frames in too slowly",
    ),
    _rule(
        "transmit-discards",
        "tx_discards_phy",
        beyond_peers(1000),
        "suspect",
        Blame.PEER,
        "far more frames are dropped before they are sent than at the node's other ports",
        f"healthd: {_MLX5}: link down or paused by the network",
    ),
    _rule(
        "module-hot",
        "module_high_temp",
        Grows(by=1, within=_HOUR),
        "suspect",
        Blame.LINK,
        "a transceiver module got too hot",
        _MLX5,
        "Check the air flow and the module.",
        same_as="nic-module-hot",
    ),
    _rule(
        "module-bus-stuck",
        "module_bus_stuck",
        Grows(by=1, within=_HOUR),
        "serious",
        Blame.LINK,
        "a transceiver module does not answer",
        _MLX5,
        "Reseat or replace the module.",
        same_as="nic-module",
    ),
    _rule(
        "module-shorted",
        "module_bad_shorted",
        Grows(by=1, within=_HOUR),
        "serious",
        Blame.LINK,
        "a transceiver module or its cable has a short",
        _MLX5,
        "Replace the module or the cable.",
        same_as="nic-module",
    ),
    _rule(
        "module-unplugged",
        "module_unplug",
        Grows(by=1, within=_HOUR),
        "suspect",
        Blame.LINK,
        "a transceiver module was pulled out",
        _MLX5,
    ),
)

PAUSE = (
    _rule(
        "pause-storm",
        "tx_pause_storm_error_events",
        Grows(by=1, within=_HOUR),
        "serious",
        Blame.NODE,
        "this host stopped the fabric for so long that its NIC gave up doing so",
        f"{_MLX5}: frames may have been lost",
        "Look for what makes this host slow: PCIe width, IOMMU, memory. It slows others down.",
    ),
    _rule(
        "pause-storm-warning",
        "tx_pause_storm_warning_events",
        Grows(by=1, within=_HOUR),
        "suspect",
        Blame.NODE,
        "this host stops the fabric for long",
        _MLX5,
    ),
    _rule(
        "pause-sent-time",
        "tx_pause_us",
        Grows(by=6e6, within=_MINUTE),
        "suspect",
        Blame.NODE,
        "this host stops the fabric for more than a tenth of the time",
        f"healthd: {_MLX5}; no detector publishes a threshold",
        "Look for what makes this host slow: PCIe width, IOMMU, memory. It slows others down.",
    ),
    _rule(
        "pause-received-time",
        "rx_pause_us",
        beyond_peers(6e6),
        "record",
        Blame.PEER,
        "the fabric stops this port far longer than the node's others",
        f"healthd: {_MLX5}; no detector publishes a threshold",
    ),
    _rule(
        "pause-sent",
        "tx_pause",
        beyond_peers(10_000),
        "record",
        Blame.NODE,
        "this port stops the fabric far more often than the node's others",
        f"healthd: {_MLX5}; no detector publishes a threshold",
    ),
    _rule(
        "pause-received",
        "rx_pause",
        beyond_peers(10_000),
        "record",
        Blame.PEER,
        "the fabric stops this port far more often than the node's others",
        f"healthd: {_MLX5}; no detector publishes a threshold",
    ),
)

PCI = (
    _rule(
        "pci-receive-signal",
        "rx_pci_signal_integrity",
        Grows(by=60, within=_HOUR),
        "suspect",
        Blame.DEVICE,
        "the NIC receives damaged PCIe signals",
        f"healthd: {_MLX5}: training makes a few, growth means another slot or cable",
        "Move the NIC to another slot.",
    ),
    _rule(
        "pci-transmit-signal",
        "tx_pci_signal_integrity",
        Grows(by=60, within=_HOUR),
        "suspect",
        Blame.DEVICE,
        "the NIC's PCIe signals arrive damaged",
        f"healthd: {_MLX5}: training makes a few, growth means another slot or cable",
        "Move the NIC to another slot.",
    ),
    _rule(
        "pci-read-stalls",
        "outbound_pci_stalled_rd_events",
        beyond_peers(60),
        "suspect",
        Blame.NODE,
        "the NIC waits for the host's memory far more than the node's others do when it reads",
        f"healthd: {_MLX5}: seconds in which it waited for more than 30 % of the time",
    ),
    _rule(
        "pci-write-stalls",
        "outbound_pci_stalled_wr_events",
        beyond_peers(60),
        "suspect",
        Blame.NODE,
        "the NIC waits for the host's memory far more than the node's others do when it writes",
        f"healthd: {_MLX5}: seconds in which it waited for more than 30 % of the time",
    ),
    _rule(
        "pci-overflows",
        "outbound_pci_buffer_overflow",
        beyond_peers(1000),
        "suspect",
        Blame.NODE,
        "far more frames are lost because the host's memory is slow than at the node's other ports",
        f"healthd: {_MLX5}",
    ),
)
