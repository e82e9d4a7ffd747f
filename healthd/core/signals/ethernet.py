"""
Rules about Ethernet ports: carrier, speed, errors on the wire, pause frames, modules, and the NIC's side of PCIe.

Nothing here takes a node out of service. Of a port that carries RDMA the rules about its link do that; of any other one
nobody knows here what it is for. Of mlx5's statistics NVIDIA says what they mean, but nobody publishes limits.
"""

from __future__ import annotations

from datetime import timedelta

from healthd.core.model import Blame
from healthd.core.signals.rule import Below, FellBelowBest, Grows, Is, OutOfLine, Rule, Test

_MINUTE = timedelta(minutes=1)
_HOUR = timedelta(hours=1)
_NO_WAIT = timedelta(0)

_NVSENTINEL = "NVSentinel NIC monitor, default counter table (1.31)"
_SYSFS = "Linux, Documentation/ABI/testing/sysfs-class-net-statistics"
_MLX5 = "Linux, Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst"

_BETTER_CABLE = "Clean, reseat or replace the cable."


def _beyond_peers(floor: float) -> OutOfLine:
    return OutOfLine(score=6, floor=floor, within=timedelta(minutes=5))


def _rule(
    name: str,
    reads: str,
    test: Test,
    tier: str,
    blame: Blame,
    summary: str,
    source: str,
    advice: str = "",
    holds: timedelta = _NO_WAIT,
    same_as: str = "",
) -> Rule:
    return Rule(
        name=f"eth-{name}",
        reads=f"eth.{reads}",
        test=test,
        tier=tier,
        blame=blame,
        summary=summary,
        advice=advice,
        holds=holds,
        same_as=same_as,
        source=source,
    )


_SYSFS_RULES = (
    _rule(
        "link-down",
        "link",
        Is(frozenset({"down"})),
        "serious",
        Blame.LINK,
        "an Ethernet port lost its carrier",
        "healthd: in use before and not switched off",
        "Check the cable and its modules, then the switch port, then the NIC.",
        holds=timedelta(seconds=30),
        same_as="nic-port-down",
    ),
    _rule(
        "link-off",
        "link",
        Is(frozenset({"off"})),
        "suspect",
        Blame.NODE,
        "an Ethernet port that was up is switched off on this node",
        "healthd: the interface lacks IFF_UP",
        holds=_MINUTE,
        same_as="nic-port-off",
    ),
    _rule(
        "link-flaps",
        "carrier_down_count",
        Grows(by=4, within=timedelta(hours=3)),
        "serious",
        Blame.LINK,
        "the carrier was lost more than three times in three hours",
        "Azure healthagent's limit for link_downed; not certain here, because software can take a carrier away too",
        "Replace or reseat the cable; if it goes on, the module or the switch port.",
        same_as="nic-link-flaps",
    ),
    _rule(
        "carrier-changes",
        "carrier_changes",
        Grows(by=3, within=_HOUR),
        "suspect",
        Blame.LINK,
        "the carrier came and went",
        f"{_NVSENTINEL}: above 2",
    ),
    _rule(
        "speed-below-peers",
        "speed",
        Below(other="eth.peer_speed"),
        "suspect",
        Blame.LINK,
        "the port runs slower than those of its kind on this node",
        "Meta GCM check-ethlink compares with a manifest; healthd with the node's other ports",
        _BETTER_CABLE,
        holds=_MINUTE,
        same_as="nic-link-slow",
    ),
    _rule(
        "speed-fell",
        "speed",
        FellBelowBest(),
        "serious",
        Blame.LINK,
        "the port came back slower than it was",
        "healthd: a port does not get slower by itself",
        _BETTER_CABLE,
        holds=_MINUTE,
        same_as="nic-link-slow",
    ),
    _rule(
        "checksum-errors",
        "rx_crc_errors",
        Grows(by=61, within=_MINUTE),
        "suspect",
        Blame.LINK,
        "frames arrive damaged",
        f"healthd: {_SYSFS}; NVSentinel knows it and leaves it off",
        _BETTER_CABLE,
    ),
    _rule(
        "frame-errors",
        "rx_frame_errors",
        Grows(by=61, within=_MINUTE),
        "suspect",
        Blame.LINK,
        "frames arrive misaligned",
        f"healthd: {_SYSFS}",
        _BETTER_CABLE,
    ),
    _rule(
        "carrier-errors",
        "tx_carrier_errors",
        Grows(by=1, within=_HOUR),
        "suspect",
        Blame.LINK,
        "frames were not sent for want of a carrier",
        f"healthd: {_SYSFS}; NVSentinel knows it and leaves it off",
    ),
    _rule(
        "missed",
        "rx_missed_errors",
        _beyond_peers(1000),
        "record",
        Blame.NODE,
        "the host takes frames in too slowly, far more so than at the node's other ports",
        f"healthd: {_SYSFS}",
    ),
    _rule(
        "overflows",
        "rx_fifo_errors",
        _beyond_peers(1000),
        "record",
        Blame.NODE,
        "the NIC's buffer overflows, far more often than at the node's other ports",
        f"healthd: {_SYSFS}",
    ),
)

_WIRE_RULES = (
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
        _beyond_peers(1e8),
        "record",
        Blame.LINK,
        "error correction mends far more than at the node's other ports",
        f"healthd: {_MLX5}; mending is normal at 100 Gb/s and more a lane",
        _BETTER_CABLE,
    ),
    _rule(
        "receive-discards",
        "rx_discards_phy",
        _beyond_peers(1000),
        "suspect",
        Blame.NODE,
        "far more frames find no buffer in the NIC than at the node's other ports",
        f"healthd: {_MLX5}: this host takes frames in too slowly",
    ),
    _rule(
        "transmit-discards",
        "tx_discards_phy",
        _beyond_peers(1000),
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

_PAUSE_RULES = (
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
        _beyond_peers(6e6),
        "record",
        Blame.PEER,
        "the fabric stops this port far longer than the node's others",
        f"healthd: {_MLX5}; no detector publishes a threshold",
    ),
    _rule(
        "pause-sent",
        "tx_pause",
        _beyond_peers(10_000),
        "record",
        Blame.NODE,
        "this port stops the fabric far more often than the node's others",
        f"healthd: {_MLX5}; no detector publishes a threshold",
    ),
    _rule(
        "pause-received",
        "rx_pause",
        _beyond_peers(10_000),
        "record",
        Blame.PEER,
        "the fabric stops this port far more often than the node's others",
        f"healthd: {_MLX5}; no detector publishes a threshold",
    ),
)

_PCI_RULES = (
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
        _beyond_peers(60),
        "suspect",
        Blame.NODE,
        "the NIC waits for the host's memory far more than the node's others do when it reads",
        f"healthd: {_MLX5}: seconds in which it waited for more than 30 % of the time",
    ),
    _rule(
        "pci-write-stalls",
        "outbound_pci_stalled_wr_events",
        _beyond_peers(60),
        "suspect",
        Blame.NODE,
        "the NIC waits for the host's memory far more than the node's others do when it writes",
        f"healthd: {_MLX5}: seconds in which it waited for more than 30 % of the time",
    ),
    _rule(
        "pci-overflows",
        "outbound_pci_buffer_overflow",
        _beyond_peers(1000),
        "suspect",
        Blame.NODE,
        "far more frames are lost because the host's memory is slow than at the node's other ports",
        f"healthd: {_MLX5}",
    ),
)

RULES: tuple[Rule, ...] = (*_SYSFS_RULES, *_WIRE_RULES, *_PAUSE_RULES, *_PCI_RULES)
