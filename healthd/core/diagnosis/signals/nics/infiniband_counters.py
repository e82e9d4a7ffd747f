"""
Rules about what InfiniBand ports count, and RoCE ports with them: errors of the link, and of the transport over it.

The rates of other detectors were per second and over single polls. Here they must hold for a minute, so that a burst is
no finding. A counter that congestion moves only reports and takes no action.
"""

from __future__ import annotations

from datetime import timedelta

from healthd.core.api.model import Blame
from healthd.core.diagnosis.signals.rule import Grows, IsNot, OutOfLine, Rule

_MINUTE = timedelta(minutes=1)
_HOUR = timedelta(hours=1)

_NVSENTINEL = "NVSentinel NIC monitor, default counter table (1.31)"
_SPEC = "InfiniBand Architecture Specification, volume 1, 16.1.3.5 PortCounters"
_MLX5 = "NVIDIA, Understanding mlx5 Linux counters and status parameters"
_OWN = "healthd"

COUNTERS = (
    Rule(
        name="ib-symbol-errors",
        reads="ib.symbol_error",
        test=Grows(by=121, within=_HOUR),
        tier="serious",
        blame=Blame.LINK,
        summary="more symbol errors than a sound link may have",
        advice="Clean, reseat or replace the cable.",
        clears_after=_HOUR,
        same_as="nic-symbol-errors",
        source=f"{_NVSENTINEL}: fatal above 120 an hour, after the bit error rate of 1e-12 that is allowed",
    ),
    Rule(
        name="ib-symbol-errors-burst",
        reads="ib.symbol_error",
        test=Grows(by=601, within=_MINUTE),
        tier="suspect",
        blame=Blame.LINK,
        summary="a burst of symbol errors",
        same_as="nic-symbol-errors",
        source=f"{_NVSENTINEL}: above 10 a second",
    ),
    Rule(
        name="ib-link-recoveries",
        reads="ib.link_error_recovery",
        test=Grows(by=6, within=_MINUTE),
        tier="serious",
        blame=Blame.LINK,
        summary="the link recovers from errors again and again",
        source=f"{_NVSENTINEL}: above 5 a minute; healthagent warns above 3 ever",
    ),
    Rule(
        name="ib-buffer-overruns",
        reads="ib.excessive_buffer_overrun_errors",
        test=Grows(by=1, within=_HOUR),
        tier="serious",
        blame=Blame.LINK,
        summary="the far end sent more than it was granted",
        advice="Look at both ends of the cable: flow control does not hold.",
        source=f"{_NVSENTINEL}: fatal above 0; not here, because {_SPEC} lays it to either end",
    ),
    Rule(
        name="ib-link-integrity",
        reads="ib.local_link_integrity_errors",
        test=Grows(by=1, within=_HOUR),
        tier="serious",
        blame=Blame.LINK,
        summary="local physical errors exceeded the port's own limit",
        advice="Reseat or replace the cable.",
        source=f"{_NVSENTINEL}: fatal above 0; the link still runs, so here a person decides",
    ),
    Rule(
        name="ib-receive-errors",
        reads="ib.port_rcv_errors",
        test=Grows(by=601, within=_MINUTE),
        tier="suspect",
        blame=Blame.LINK,
        summary="damaged packets arrive",
        source=f"{_NVSENTINEL}: above 10 a second",
    ),
    Rule(
        name="ib-remote-physical-errors",
        reads="ib.port_rcv_remote_physical_errors",
        test=Grows(by=601, within=_MINUTE),
        tier="suspect",
        blame=Blame.PEER,
        summary="packets arrive that were marked bad further away",
        advice="The bad link is another one: look at the switches on the way.",
        source=f"{_SPEC}: packets with the bad delimiter; threshold as for receive errors",
    ),
    Rule(
        name="ib-switch-relay-errors",
        reads="ib.port_rcv_switch_relay_errors",
        test=Grows(by=601, within=_MINUTE),
        tier="record",
        blame=Blame.PEER,
        summary="packets could not be forwarded",
        source=f"{_SPEC}; NVSentinel knows it and leaves it off",
    ),
    Rule(
        name="ib-transmit-discards",
        reads="ib.port_xmit_discards",
        test=Grows(by=6001, within=_MINUTE),
        tier="suspect",
        blame=Blame.PEER,
        summary="packets are dropped because they cannot be sent",
        source=f"{_NVSENTINEL}: above 100 a second; the far end is down or congested",
    ),
    Rule(
        name="ib-transmit-constraints",
        reads="ib.port_xmit_constraint_errors",
        test=Grows(by=1, within=_HOUR),
        tier="record",
        blame=Blame.UNKNOWN,
        summary="packets were not sent because of a wrong partition or version",
        source=_SPEC,
    ),
    Rule(
        name="ib-receive-constraints",
        reads="ib.port_rcv_constraint_errors",
        test=Grows(by=1, within=_HOUR),
        tier="record",
        blame=Blame.PEER,
        summary="packets were refused because of a wrong partition or version",
        source=_SPEC,
    ),
    Rule(
        name="ib-management-dropped",
        reads="ib.VL15_dropped",
        test=Grows(by=601, within=_MINUTE),
        tier="record",
        blame=Blame.UNKNOWN,
        summary="management packets are dropped",
        source=f"{_SPEC}: lack of buffers in this port",
    ),
    Rule(
        name="ib-counters-full",
        reads="ib.saturated",
        test=IsNot(frozenset({"none"})),
        tier="record",
        blame=Blame.UNKNOWN,
        summary="counters of a port are at the end of their range and no longer count",
        advice="Reset them: perfquery -R.",
        holds=_MINUTE,
        source=f"{_SPEC}: counters of 4, 8 and 16 bits stop at their highest value",
    ),
)

TRANSPORT = (
    Rule(
        name="ib-ack-timeouts",
        reads="ib.local_ack_timeout_err",
        test=Grows(by=61, within=_MINUTE),
        tier="suspect",
        blame=Blame.UNKNOWN,
        summary="peers do not acknowledge in time",
        source=f"{_NVSENTINEL}: above 1 a second; the far end or the way to it",
    ),
    Rule(
        name="ib-receiver-not-ready",
        reads="ib.rnr_nak_retry_err",
        test=Grows(by=1, within=_HOUR),
        tier="record",
        blame=Blame.PEER,
        summary="a peer had no receive buffer ready",
        source=f"{_NVSENTINEL}: fatal above 0; by {_MLX5} no retry limit was exceeded, so it is only recorded",
    ),
    Rule(
        name="ib-retries-exceeded",
        reads="ib.req_transport_retries_exceeded",
        test=Grows(by=1, within=_HOUR),
        tier="suspect",
        blame=Blame.UNKNOWN,
        summary="a connection was given up after all retries",
        source=f"{_MLX5}; the far end, the way to it, or a job that ended",
    ),
    Rule(
        name="ib-out-of-sequence",
        reads="ib.out_of_sequence",
        test=OutOfLine(score=6, floor=1000, within=timedelta(minutes=5)),
        tier="suspect",
        blame=Blame.UNKNOWN,
        summary="far more packets out of order than at the node's other ports",
        source=f"{_OWN}: {_MLX5}; no detector publishes a threshold, adaptive routing reorders by design",
    ),
    Rule(
        name="ib-sequence-errors",
        reads="ib.packet_seq_err",
        test=OutOfLine(score=6, floor=1000, within=timedelta(minutes=5)),
        tier="suspect",
        blame=Blame.UNKNOWN,
        summary="peers miss far more packets than those of the node's other ports",
        source=f"{_OWN}: {_MLX5}; no detector publishes a threshold",
    ),
)
