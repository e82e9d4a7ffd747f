"""The grammar of network drivers: mlx5 (ConnectX, BlueField), EFA, InfiniBand in general, and other Ethernet."""

from __future__ import annotations

import re

from healthd.core.diagnosis.klog.message import FULL_ADDRESS, Message, MessageKind, first_address

_MLX5 = re.compile(
    rf"mlx5(?:_\w{{1,48}})?(?:\.sf mlx5_core\.sf\.\d{{1,6}})?(?: ?{FULL_ADDRESS})?(?: [\w.@-]{{1,32}})?"
    r"(?: \([^)]{1,48}\)){0,2}:"
    r"|NETDEV WATCHDOG: \S{1,32} \(mlx5_core\):",
    re.ASCII,
)
_EFA = re.compile(
    rf"efa(?: {FULL_ADDRESS})?(?: [\w.-]{{1,32}})?:|infiniband (?:rdmap\w{{1,24}}|efa_\d{{1,4}}):", re.ASCII
)
"""Without its PCI device, a line of EFA begins with the name of the RDMA device: `rdmap…` by the udev rules."""
_IB = re.compile(
    rf"infiniband [\w.-]{{1,32}}:|ib(?:\d{{1,3}}|[ps]\d\w{{0,12}})(?:\.\w{{1,8}})?:|IPoIB:"
    rf"|(?:(?:ib|rdma|iw)_\w{{1,16}}|mlx4_ib|hfi1|irdma|i40iw|bnxt_re)(?: {FULL_ADDRESS})?:|<mlx4_ib>"
    rf"|bnxt_en {FULL_ADDRESS}(?: bnxt_re\d{{1,4}}:|: QPLIB:)",
    re.ASCII,
)
_INTERFACE = r"(?: [\w.@-]{1,32}| \(unnamed net_device\))?(?: \([a-z]{1,16}\))?"
"""Before it is registered, and while it is removed, an interface has its state after its name."""
_DRIVERS = (
    "bnxt_en|bnx2x|tg3|e1000e?|igbv?f?|igc|ixgbe|ixgbevf|i40e|iavf|ice|idpf|fm10k|ena|gve|mana|ionic|pds_core|be2net|enic"
    "|qede|qed|cxgb4|sfc|atlantic|r8169|hns3|nfp|octeon_ep|hinic3?|ngbe|txgbe"
)
_NET = re.compile(
    rf"(?:[\w.-]{{1,32}} {FULL_ADDRESS}{_INTERFACE}: )?NETDEV WATCHDOG: "
    rf"|(?:{_DRIVERS}): probe of {FULL_ADDRESS} "
    rf"|(?:{_DRIVERS}) {FULL_ADDRESS}{_INTERFACE}: "
    r"|unregister_netdevice: waiting for |(?:nf_conntrack: )?(?:nf|ip)_conntrack: table full",
    re.ASCII,
)


def parse_network(text: str) -> Message | None:
    """Parse a message of a network driver. None if it has another source."""
    for kind, grammar in (
        (MessageKind.MLX5, _MLX5),
        (MessageKind.EFA, _EFA),
        (MessageKind.IB, _IB),
        (MessageKind.NET, _NET),
    ):
        if grammar.match(text):
            return Message(kind=kind, text=text, pci=first_address(text))
    return None
