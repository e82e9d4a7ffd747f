"""
Rules about InfiniBand ports, and about what RoCE ports share with them: the link and its rate.

The rules began as the table of NVSentinel's NIC monitor. Where healthd judges otherwise, the rule's source gives the
reason. What takes a node out of service: a port next to a GPU that is down, and a link that is lost again and again.
The other counters of ports have their rules in `infiniband_counters`.
"""

from __future__ import annotations

from datetime import timedelta

from healthd.core.api.model import Blame
from healthd.core.diagnosis.signals.before import fewer_than_before, not_up_since_boot, slower_than_before
from healthd.core.diagnosis.signals.nics.infiniband_counters import COUNTERS, TRANSPORT
from healthd.core.diagnosis.signals.rule import Below, Changes, FellBelowBest, Grows, Is, Rule

_MINUTE = timedelta(minutes=1)
_HOUR = timedelta(hours=1)

_NVSENTINEL = "NVSentinel NIC monitor, default counter table (1.31)"
_OWN = "healthd"

_LINKS = (
    Rule(
        name="ib-port-down",
        reads="ib.rail_link",
        test=Is(frozenset({"down"})),
        tier="mechanics",
        blame=Blame.LINK,
        summary="the port next to a GPU lost its link",
        advice="Check the cable and its modules, then the switch port, then the NIC.",
        holds=timedelta(seconds=30),
        same_as="nic-port-down",
        source=f"{_OWN}: NVSentinel says fatal at once, gpud after 4 min; NCCL's default time-outs give up in between",
    ),
    Rule(
        name="ib-port-down-off-rail",
        reads="ib.link",
        test=Is(frozenset({"down-off-rail"})),
        tier="suspect",
        blame=Blame.LINK,
        summary="a port that was up and is no GPU's nearest lost its link",
        advice="When it is meant to be unused, nothing; otherwise check the cable and the switch port.",
        holds=_MINUTE,
        same_as="nic-port-down",
        source=f"{_OWN}: unused ports were called bad in NVSentinel issue 1361",
    ),
    Rule(
        name="ib-port-disabled",
        reads="ib.link",
        test=Is(frozenset({"disabled"})),
        tier="suspect",
        blame=Blame.NODE,
        summary="a port that was up is switched off on this node",
        advice="Switch it on again, or say that the node is under repair.",
        holds=_MINUTE,
        same_as="nic-port-off",
        source=f"{_OWN}: phys_state Disabled, and of RoCE an interface without IFF_UP",
    ),
    Rule(
        name="ib-port-not-managed",
        reads="ib.link",
        test=Is(frozenset({"no-manager"})),
        tier="serious",
        blame=Blame.PEER,
        summary="the link is up but no subnet manager makes the port active",
        advice="Look at the subnet manager and the fabric; it is seldom the node.",
        holds=timedelta(minutes=5),
        source="InfiniBand Architecture Specification, volume 1, 7.2.7: Initialize and Armed wait for the manager",
    ),
    Rule(
        name="ib-port-never-up",
        reads="ib.link",
        test=Is(frozenset({"never-up"})),
        tier="suspect",
        blame=Blame.LINK,
        summary="a port was never up since boot, though most ports of its kind are",
        advice="Check that its cable is plugged in.",
        holds=timedelta(minutes=10),
        source=f"{_OWN}: like NVSentinel's, which asks the peers before it believes a port that it first sees down",
    ),
    Rule(
        name="ib-device-gone",
        reads="ib.present",
        test=Is(frozenset({"no"})),
        tier="serious",
        blame=Blame.DEVICE,
        summary="an RDMA device is no longer there",
        advice="Look in the kernel log for why its driver gave it up; reload the driver or reboot the node.",
        holds=_MINUTE,
        same_as="nic-lost",
        source=f"{_NVSENTINEL}: gone in three polls is fatal; not here, because a driver that is reloaded does it too",
    ),
    Rule(
        name="ib-not-usable",
        reads="ib.verbs",
        test=Is(frozenset({"no"})),
        tier="serious",
        blame=Blame.NODE,
        summary="programs cannot open an RDMA device that is there",
        advice="Reload the RDMA drivers or reboot the node.",
        holds=_MINUTE,
        source=f"{_NVSENTINEL}: without its uverbs device in three polls is fatal; not here, because software does it",
    ),
    Rule(
        name="ib-link-flaps",
        reads="ib.link_downed",
        test=Grows(by=4, within=timedelta(hours=3)),
        tier="mechanics",
        blame=Blame.LINK,
        summary="the link was lost more than three times in three hours",
        advice="Replace or reseat the cable; if it goes on, the module or the switch port.",
        # A counter that shows nonsense for a moment is corrected meanwhile.
        holds=timedelta(seconds=10),
        clears_after=timedelta(hours=3),
        same_as="nic-link-flaps",
        source="Azure healthagent: link_downed > 3 in 10 800 s, also the rule by which Azure takes such nodes back",
    ),
    Rule(
        name="ib-rail-link-flaps",
        reads="ib.rail_link",
        test=Changes(times=8, within=timedelta(hours=3)),
        tier="mechanics",
        blame=Blame.LINK,
        summary="the port next to a GPU lost its link more than three times in three hours",
        advice="Replace or reseat the cable; if it goes on, the module or the switch port.",
        clears_after=timedelta(hours=3),
        same_as="nic-link-flaps",
        source=f"{_OWN}: as for links whose losses are counted, by looks a second apart, where they are not",
    ),
    Rule(
        name="ib-link-downed",
        reads="ib.link_downed",
        test=Grows(by=1, within=_HOUR),
        tier="suspect",
        blame=Blame.LINK,
        summary="the link was lost and came back",
        source=f"{_NVSENTINEL}: fatal above 0; here it takes more than three: a switch that reboots makes one",
    ),
    Rule(
        name="ib-link-retrains",
        reads="ib.phys_state",
        test=Is(frozenset({"LinkErrorRecovery"})),
        tier="serious",
        blame=Blame.LINK,
        summary="the link keeps recovering from errors",
        holds=timedelta(seconds=10),
        source="InfiniBand Architecture Specification, volume 1, PortInfo:PortPhysicalState",
    ),
    Rule(
        name="ib-rate-below-peers",
        reads="ib.rate",
        test=Below(other="ib.peer_rate"),
        tier="serious",
        blame=Blame.LINK,
        summary="the link runs slower than those of its kind on this node",
        advice="Reseat or replace the cable; it trained with fewer lanes or a lower speed.",
        holds=_MINUTE,
        same_as="nic-link-slow",
        source="Meta GCM check-iblink and gpud compare with a manifest; healthd with the node's other ports",
    ),
    Rule(
        name="ib-rate-fell",
        reads="ib.rate",
        test=FellBelowBest(),
        tier="serious",
        blame=Blame.LINK,
        summary="the link came back slower than it was",
        advice="Reseat or replace the cable; it trained with fewer lanes or a lower speed.",
        holds=_MINUTE,
        same_as="nic-link-slow",
        source=f"{_OWN}: a port does not get slower by itself",
    ),
)

_EXPECTED = (
    fewer_than_before("ib-fewer-devices", "ib.devices", "fewer RDMA devices are there than there were"),
    not_up_since_boot("ib-port-not-up-since-boot", "ib.up_since_boot"),
    slower_than_before("ib-rate-below-before", "ib.rate"),
    Rule(
        name="ib-rate-below-expected",
        reads="ib.rate",
        test=Below(other="ib.rate.expected"),
        tier="serious",
        blame=Blame.LINK,
        summary="the link runs slower than the configuration expects",
        advice="Reseat or replace the cable; it trained with fewer lanes or a lower speed.",
        holds=_MINUTE,
        same_as="nic-link-slow",
        source=f"{_OWN}: `probes.port_rate_gbps`",
    ),
    Rule(
        name="ib-too-few-ports",
        reads="ib.ports_up",
        test=Below(other="ib.ports_up.expected"),
        tier="serious",
        blame=Blame.NODE,
        summary="fewer RDMA ports are up than the configuration expects",
        holds=timedelta(minutes=5),
        source=f"{_OWN}: `probes.ports`",
    ),
)

RULES: tuple[Rule, ...] = (*_LINKS, *_EXPECTED, *COUNTERS, *TRANSPORT)
