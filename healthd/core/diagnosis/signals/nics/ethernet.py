"""
Rules about Ethernet ports: carrier, speed, and what the kernel counts of every port.

Nothing here takes a node out of service. For a port that carries RDMA, the rules about its link do that. The purpose of
any other port is unknown here. The counters of drivers have their rules in `ethernet_statistics`.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial

from healthd.core.api.model import Blame
from healthd.core.diagnosis.signals.before import not_up_since_boot, slower_than_before
from healthd.core.diagnosis.signals.nics.ethernet_statistics import PAUSE, PCI, WIRE
from healthd.core.diagnosis.signals.nics.ports import beyond_peers, port_rule
from healthd.core.diagnosis.signals.rule import Below, FellBelowBest, Grows, Is, Rule

_MINUTE = timedelta(minutes=1)
_HOUR = timedelta(hours=1)

_NVSENTINEL = "NVSentinel NIC monitor, default counter table (1.31)"
_SYSFS = "Linux, Documentation/ABI/testing/sysfs-class-net-statistics"

_BETTER_CABLE = "Clean, reseat or replace the cable."

_rule = partial(port_rule, "eth")


_LINKS = (
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
        beyond_peers(1000),
        "record",
        Blame.NODE,
        "the host takes frames in too slowly, far more so than at the node's other ports",
        f"healthd: {_SYSFS}",
    ),
    _rule(
        "overflows",
        "rx_fifo_errors",
        beyond_peers(1000),
        "record",
        Blame.NODE,
        "the NIC's buffer overflows, far more often than at the node's other ports",
        f"healthd: {_SYSFS}",
    ),
)

_EXPECTED = (
    not_up_since_boot("eth-port-not-up-since-boot", "eth.up_since_boot"),
    slower_than_before("eth-speed-below-before", "eth.speed"),
)

RULES: tuple[Rule, ...] = (*_LINKS, *_EXPECTED, *WIRE, *PAUSE, *PCI)
