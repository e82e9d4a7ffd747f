"""Rules about the transport of RoCE ports, by the counters of the bnxt_re and irdma drivers."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

from healthd.core.api.model import Blame
from healthd.core.diagnosis.signals.nics.ports import beyond_peers, port_rule
from healthd.core.diagnosis.signals.rule import Grows

_MINUTE = timedelta(minutes=1)
_HOUR = timedelta(hours=1)

_NVSENTINEL = "NVSentinel NIC monitor, default counter table (1.31)"
_BNXT = "Linux, drivers/infiniband/hw/bnxt_re/hw_counters.c"
_IRDMA = "Linux, drivers/infiniband/hw/irdma/verbs.c"
_NO_NUMBER = "no detector publishes a threshold"

_rule = partial(port_rule, "roce")

BNXT = (
    _rule(
        "bnxt-retransmits",
        "to_retransmits",
        beyond_peers(1000),
        "suspect",
        Blame.UNKNOWN,
        "far more is sent twice after a time-out than at the node's other ports",
        f"healthd: {_BNXT}; {_NO_NUMBER}",
    ),
    _rule(
        "bnxt-sequence-errors",
        "seq_err_naks_rcvd",
        beyond_peers(1000),
        "suspect",
        Blame.UNKNOWN,
        "peers miss far more packets than those of the node's other ports",
        f"healthd: {_BNXT}; {_NO_NUMBER}",
    ),
    _rule(
        "bnxt-out-of-sequence",
        "oos_drop_count",
        beyond_peers(1000),
        "suspect",
        Blame.UNKNOWN,
        "far more packets out of order than at the node's other ports",
        f"healthd: {_BNXT}; {_NO_NUMBER}",
    ),
    _rule(
        "bnxt-retries-exceeded",
        "max_retry_exceeded",
        Grows(by=1, within=_HOUR),
        "suspect",
        Blame.UNKNOWN,
        "a connection was given up after all retries",
        f"{_BNXT}; the far end, the way to it, or a job that ended",
    ),
    _rule(
        "bnxt-errors",
        "rx_roce_errors",
        beyond_peers(1000),
        "suspect",
        Blame.LINK,
        "far more damaged packets than at the node's other ports",
        f"healthd: {_BNXT}; {_NO_NUMBER}",
    ),
    _rule(
        "bnxt-discards",
        "rx_roce_discards",
        beyond_peers(1000),
        "suspect",
        Blame.NODE,
        "far more packets are dropped on arrival than at the node's other ports",
        f"healthd: {_BNXT}; {_NO_NUMBER}",
    ),
    _rule(
        "bnxt-unrecoverable",
        "unrecoverable_err",
        Grows(by=1, within=_HOUR),
        "suspect",
        Blame.UNKNOWN,
        "a connection met an error that it could not recover from",
        _BNXT,
    ),
    _rule(
        "bnxt-memory-errors",
        "res_mem_err",
        Grows(by=1, within=_HOUR),
        "suspect",
        Blame.DEVICE,
        "the device could not reach memory",
        _BNXT,
    ),
    _rule(
        "bnxt-pci-transmit-errors",
        "res_tx_pci_err",
        Grows(by=1, within=_HOUR),
        "serious",
        Blame.DEVICE,
        "the device met PCIe errors while sending",
        _BNXT,
    ),
    _rule(
        "bnxt-pci-receive-errors",
        "res_rx_pci_err",
        Grows(by=1, within=_HOUR),
        "serious",
        Blame.DEVICE,
        "the device met PCIe errors while receiving",
        _BNXT,
    ),
)

IRDMA = (
    _rule(
        "irdma-retransmits",
        "tcpRetransSegs",
        beyond_peers(1000),
        "suspect",
        Blame.UNKNOWN,
        "far more is sent twice than at the node's other ports",
        f"healthd: {_IRDMA}; {_NO_NUMBER}",
    ),
    _rule(
        "irdma-discards",
        "ip4InDiscards",
        beyond_peers(1000),
        "suspect",
        Blame.NODE,
        "far more packets are dropped on arrival than at the node's other ports",
        f"healthd: {_IRDMA}; {_NO_NUMBER}",
    ),
    _rule(
        "irdma-protocol-errors",
        "tcpInProtoErrors",
        beyond_peers(100),
        "suspect",
        Blame.UNKNOWN,
        "far more packets break the protocol than at the node's other ports",
        f"healthd: {_IRDMA}; {_NO_NUMBER}",
    ),
    _rule(
        "irdma-congestion-marks",
        "RxECNMrkd",
        beyond_peers(10_000),
        "record",
        Blame.UNKNOWN,
        "far more packets arrive marked with congestion than at the node's other ports",
        f"healthd: {_IRDMA}; {_NO_NUMBER}",
    ),
    _rule(
        "irdma-congestion-notices-ignored",
        "cnpIgnored",
        Grows(by=1, within=_HOUR),
        "record",
        Blame.NODE,
        "notices of congestion are ignored",
        f"healthd: {_IRDMA}; {_NO_NUMBER}",
    ),
    _rule(
        "irdma-congestion-notices-sent",
        "cnpSent",
        beyond_peers(10_000),
        "record",
        Blame.UNKNOWN,
        "far more congestion towards this port than towards the node's others",
        f"healthd: {_IRDMA}; {_NO_NUMBER}",
    ),
)
