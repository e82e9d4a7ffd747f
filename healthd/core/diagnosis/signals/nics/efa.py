"""
Rules about AWS's Elastic Fabric Adapter, by the counters of its driver.

The driver reports every port as active, whatever happens, so there are only counters. Most of the numbers are those of
the EKS node monitoring agent: a bucket that holds a burst and drains by one a second.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial

from healthd.core.api.model import Blame
from healthd.core.diagnosis.signals.nics.ports import port_rule
from healthd.core.diagnosis.signals.rule import Grows, OutOfLine, Rule

_MINUTE = timedelta(minutes=1)
_HOUR = timedelta(hours=1)

_DRIVER = "Linux, drivers/infiniband/hw/efa/efa_verbs.c"
_EKS = "EKS node monitoring agent: a burst of {} that drains by 1 a second, a warning"
_NVSENTINEL = "NVSentinel NIC monitor, EFA table (1.31)"

_rule = partial(port_rule, "efa")


def _burst(of: int) -> Grows:
    """Growth that, within a minute, overflows a bucket that holds *of* and drains by one a second."""
    return Grows(by=of + 60, within=_MINUTE)


RULES: tuple[Rule, ...] = (
    _rule(
        "commands-unanswered",
        "no_completion_cmds",
        Grows(by=1, within=_HOUR),
        "serious",
        Blame.DEVICE,
        "the device did not answer a command of its driver",
        f"{_NVSENTINEL}: fatal above 0; one late answer proves no broken part, so here a person decides",
        same_as="efa-timeout",
    ),
    _rule(
        "commands-failed",
        "cmds_err",
        Grows(by=100, within=_HOUR),
        "suspect",
        Blame.UNKNOWN,
        "the device refuses many commands of its driver",
        f"healthd: {_DRIVER}; single ones are an application's",
    ),
    _rule(
        "receive-drops",
        "rx_drops",
        _burst(100),
        "suspect",
        Blame.UNKNOWN,
        "packets are dropped on arrival",
        _EKS.format(100),
    ),
    _rule(
        "read-errors",
        "rdma_read_wr_err",
        _burst(100),
        "suspect",
        Blame.UNKNOWN,
        "RDMA reads fail",
        _EKS.format(100),
    ),
    _rule(
        "write-errors",
        "rdma_write_wr_err",
        _burst(100),
        "suspect",
        Blame.UNKNOWN,
        "RDMA writes fail",
        _EKS.format(100),
    ),
    _rule(
        "remotes-unresponsive",
        "unresponsive_remote_events",
        _burst(100),
        "suspect",
        Blame.PEER,
        "peers do not respond",
        _EKS.format(100),
    ),
    _rule(
        "connections-impaired",
        "impaired_remote_conn_events",
        _burst(100),
        "suspect",
        Blame.PEER,
        "connections to peers are impaired",
        _EKS.format(100),
    ),
    _rule(
        "retransmit-timeouts",
        "retrans_timeout_events",
        _burst(100),
        "suspect",
        Blame.UNKNOWN,
        "packets are sent again after time-outs",
        _EKS.format(100),
    ),
    _rule(
        "retransmits",
        "retrans_pkts",
        _burst(1000),
        "suspect",
        Blame.UNKNOWN,
        "many packets are sent again",
        _EKS.format(1000),
    ),
    _rule(
        "retransmitted-bytes",
        "retrans_bytes",
        _burst(1_000_000),
        "record",
        Blame.UNKNOWN,
        "many bytes are sent again",
        _EKS.format(1_000_000),
    ),
    _rule(
        "retransmits-beyond-peers",
        "retrans_pkts",
        OutOfLine(score=6, floor=1000, within=timedelta(minutes=5)),
        "suspect",
        Blame.LINK,
        "far more packets are sent again than at the node's other adapters",
        "healthd: no detector publishes a threshold",
    ),
    _rule(
        "queue-pairs-refused",
        "create_qp_err",
        Grows(by=10, within=_HOUR),
        "record",
        Blame.APPLICATION,
        "queue pairs could not be made",
        f"healthd: {_DRIVER}; limits of the device or a wrong request",
    ),
    _rule(
        "completion-queues-refused",
        "create_cq_err",
        Grows(by=10, within=_HOUR),
        "record",
        Blame.APPLICATION,
        "completion queues could not be made",
        f"healthd: {_DRIVER}; limits of the device or a wrong request",
    ),
    _rule(
        "memory-refused",
        "reg_mr_err",
        Grows(by=10, within=_HOUR),
        "record",
        Blame.APPLICATION,
        "memory could not be registered",
        f"healthd: {_DRIVER}; with GPU memory also a sign that its peer-memory module is missing",
    ),
    _rule(
        "addresses-refused",
        "create_ah_err",
        Grows(by=10, within=_HOUR),
        "record",
        Blame.UNKNOWN,
        "address handles could not be made",
        f"healthd: {_DRIVER}",
    ),
)
