"""
Rules about the transport of RoCE ports, by the counters of the mlx5, bnxt_re and irdma drivers.

Congestion and loss of a whole fabric are not one node's fault: what they move is compared with the node's other ports
and never takes a node out of service. Each driver counts under its own names, so each has its own rules: mlx5 here, the
others in `roce_drivers`.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial

from healthd.core.api.model import Blame
from healthd.core.diagnosis.signals.nics.ports import beyond_peers, port_rule
from healthd.core.diagnosis.signals.nics.roce_drivers import BNXT, IRDMA
from healthd.core.diagnosis.signals.rule import Grows, Rule

_MINUTE = timedelta(minutes=1)
_HOUR = timedelta(hours=1)

_NVSENTINEL = "NVSentinel NIC monitor, default counter table (1.31)"
_MLX5 = "NVIDIA, Understanding mlx5 Linux counters and status parameters"
_NO_NUMBER = "no detector publishes a threshold"

_rule = partial(port_rule, "roce")

_MLX5_RULES = (
    _rule(
        "ack-timeouts",
        "local_ack_timeout_err",
        Grows(by=61, within=_MINUTE),
        "suspect",
        Blame.UNKNOWN,
        "peers do not acknowledge in time",
        f"{_NVSENTINEL}: above 1 a second; the far end or the way to it",
    ),
    _rule(
        "slow-restarts",
        "roce_slow_restart",
        Grows(by=601, within=_MINUTE),
        "suspect",
        Blame.UNKNOWN,
        "connections start slowly again after loss",
        f"{_NVSENTINEL}: above 10 a second",
    ),
    _rule(
        "receiver-not-ready",
        "rnr_nak_retry_err",
        Grows(by=1, within=_HOUR),
        "record",
        Blame.PEER,
        "a peer had no receive buffer ready",
        f"{_NVSENTINEL}: fatal above 0; by {_MLX5} the retry limit was not exceeded, so here it is only recorded",
    ),
    _rule(
        "retries-exceeded",
        "req_transport_retries_exceeded",
        Grows(by=1, within=_HOUR),
        "suspect",
        Blame.UNKNOWN,
        "a connection was given up after all retries",
        f"{_MLX5}; the far end, the way to it, or a job that ended",
    ),
    _rule(
        "receiver-never-ready",
        "req_rnr_retries_exceeded",
        Grows(by=1, within=_HOUR),
        "suspect",
        Blame.PEER,
        "a connection was given up because the peer had no receive buffer",
        _MLX5,
    ),
    _rule(
        "out-of-sequence",
        "out_of_sequence",
        beyond_peers(1000),
        "suspect",
        Blame.UNKNOWN,
        "far more packets out of order than at the node's other ports",
        f"healthd: {_MLX5}; {_NO_NUMBER}",
        "Compare with the same rail of other nodes: packets are lost on the way to this port.",
    ),
    _rule(
        "sequence-errors",
        "packet_seq_err",
        beyond_peers(1000),
        "suspect",
        Blame.UNKNOWN,
        "peers miss far more packets than those of the node's other ports",
        f"healthd: {_MLX5}; {_NO_NUMBER}",
        "Compare with the same rail of other nodes: packets are lost on the way from this port.",
    ),
    _rule(
        "implied-sequence-errors",
        "implied_nak_seq_err",
        beyond_peers(100),
        "suspect",
        Blame.UNKNOWN,
        "answers to far more reads are lost than at the node's other ports",
        f"healthd: {_MLX5}; {_NO_NUMBER}",
    ),
    _rule(
        "adaptive-retransmits",
        "roce_adp_retrans",
        beyond_peers(1000),
        "suspect",
        Blame.UNKNOWN,
        "far more is sent twice than at the node's other ports",
        f"healthd: {_MLX5}; {_NO_NUMBER}",
    ),
    _rule(
        "adaptive-retransmit-timeouts",
        "roce_adp_retrans_to",
        beyond_peers(100),
        "suspect",
        Blame.UNKNOWN,
        "far more is sent twice after a time-out than at the node's other ports",
        f"healthd: {_MLX5}; {_NO_NUMBER}",
    ),
    _rule(
        "damaged-packets",
        "rx_icrc_encapsulated",
        Grows(by=11, within=_HOUR),
        "suspect",
        Blame.LINK,
        "packets arrive with a wrong invariant checksum",
        f"healthd: {_MLX5}; no switch may change what that checksum covers, so each is damage",
        "Clean, reseat or replace the cable; if that is sound, suspect a switch on the way.",
    ),
    _rule(
        "no-receive-buffers",
        "out_of_buffer",
        beyond_peers(1000),
        "record",
        Blame.APPLICATION,
        "far more packets find no receive buffer than at the node's other ports",
        f"healthd: {_MLX5}; {_NO_NUMBER}",
    ),
    _rule(
        "congestion-notices-ignored",
        "rp_cnp_ignored",
        Grows(by=1, within=_HOUR),
        "record",
        Blame.NODE,
        "notices of congestion are ignored",
        f"{_MLX5}: this side is not set up to slow down",
        "Switch congestion control on, for the priority that RoCE uses.",
    ),
    _rule(
        "congestion-notices-sent",
        "np_cnp_sent",
        beyond_peers(10_000),
        "record",
        Blame.UNKNOWN,
        "far more congestion towards this port than towards the node's others",
        f"healthd: {_MLX5}; {_NO_NUMBER}",
    ),
    _rule(
        "congestion-notices-handled",
        "rp_cnp_handled",
        beyond_peers(10_000),
        "record",
        Blame.UNKNOWN,
        "far more congestion on the way from this port than from the node's others",
        f"healthd: {_MLX5}; {_NO_NUMBER}",
    ),
    _rule(
        "congestion-marks",
        "np_ecn_marked_roce_packets",
        beyond_peers(10_000),
        "record",
        Blame.UNKNOWN,
        "far more packets arrive marked with congestion than at the node's other ports",
        f"healthd: {_MLX5}; {_NO_NUMBER}",
    ),
)

RULES: tuple[Rule, ...] = (*_MLX5_RULES, *BNXT, *IRDMA)
