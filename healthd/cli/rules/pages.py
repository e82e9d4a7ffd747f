"""The pages of `docs/findings/`: their files, their sources, and what each says before its tables. Data."""

from __future__ import annotations

from typing import NamedTuple

from healthd.core.diagnosis.rule_reference import KERNEL_LOG, RuleRow

INDEX = "README.md"
"""Code hosts show a file of this name as the page of its folder."""

MADE = "<!-- Written by `make docs` from the rules themselves (`healthd rules --reference DIR`). -->"

INDEX_HEAD = f"""\
# Findings

{MADE}

A finding says what is wrong with one device of a node. Its name is `<device>/<rule>`, such as `0000:3b:00.0/xid-79`.
These pages list every rule by which healthd judges a node.

| finding | the node is | what follows |
|---|---|---|
| **takes the node out** | unhealthy | The node is cordoned, within the budget. Its gangs restart without it. |
| `error`, `warning` | degraded | An event and a metric. Work goes on; a person should look. |
| `error`, `warning`, blame `application` | healthy | An event and a metric. The job is at fault, not the node. |
| `info` | healthy | An event and a metric. |
"""
INDEX_TAIL = """\
## How a finding ends

- **Kernel log**: by `healthd repair`, or by the reset or reboot that it asks for. A finding that did not take the node
  out fades after hours or days.
- **Counters and states**: when the reading has been good for long enough. Each time that the finding comes back, this
  takes twice as long.
- A reading that is missing is *unknown*. It never makes a node unhealthy.

The kernel log, NVML and DCGM may report the same fault of the same device. This is one finding, with all reports as its
evidence.

## Change a rule

| key | what it does |
|---|---|
| `judge.off` | leaves rules out |
| `judge.limits` | sets other limits |
| `judge.tiers` | sets another consequence |
| `judge.shadow` | a rule reports what it would do, and does nothing |
| `judge.rules` | adds rules of your own: [klog.md](../klog.md#rules-of-your-own) |

All keys: [configuration.md](../configuration.md#judge). `healthd rules --config FILE` lists the rules with the changes
of a configuration. `healthd rules 'ib-*'` lists some of them.
"""


class Family(NamedTuple):
    """Rules that the index does not name one by one: what their names begin with, and what they are about."""

    prefix: str
    what: str


class Page(NamedTuple):
    """One page, with the rules of *sources* (without any: of all that no other page has) that begin with *prefix*."""

    file: str
    title: str
    about: str
    """What the page says before its tables."""
    sources: tuple[str, ...] = ()
    prefix: str = ""
    families: tuple[Family, ...] = ()

    @property
    def is_of_codes(self) -> bool:
        """Whether each rule is about one error code."""
        return bool(self.prefix)


_SEE_KLOG = "How healthd reads the log: [klog.md](../klog.md)."
_SEE_NVML = "What is read, and how often: [nvml.md](../nvml.md)."
_SEE_HOST = "What is read, and how often: [host.md](../host.md)."
_SEE_NICS = "What is read, and how healthd tells a fault from congestion: [nics.md](../nics.md)."

HOST = Page(
    "host.md",
    "Host",
    "Memory, disks, file systems, temperatures, the clock, and NVIDIA's services on the node. " + _SEE_HOST,
)
PAGES = (
    Page(
        "xid.md",
        "Xids",
        """\
An Xid is an error code that NVIDIA's driver writes into the kernel log: `NVRM: Xid (PCI:0000:3b:00): 79, …`. One line
is enough for a finding.

- Xid 154 says which repair the driver wants. It counts more than the table.
- A fault of the application leaves the node healthy. When several jobs have the same fault on one GPU and on no other,
  the node is degraded (`judge.app_distinct_jobs`, `judge.app_repeats`).

"""
        + _SEE_KLOG,
        (KERNEL_LOG,),
        prefix="xid-",
    ),
    Page(
        "sxid.md",
        "SXids",
        """\
An SXid is an error code of an NVSwitch in the kernel log: `nvidia-nvswitch0: SXid (PCI:0000:b8:00.0): 20034, Fatal, …`.
**The word in the line decides, not the code**: `Fatal` takes the node out, `Non-fatal` does not. The codes that NVIDIA
documents as fatal come first. """
        + _SEE_KLOG,
        (KERNEL_LOG,),
        prefix="sxid-",
        families=(Family("sxid-", "an error of an NVSwitch"),),
    ),
    Page(
        "kernel.md",
        "Kernel log, except Xids and SXids",
        "Messages of the kernel and its drivers about GPUs, network devices, PCIe, memory, disks and file systems. "
        + _SEE_KLOG,
        (KERNEL_LOG,),
    ),
    Page(
        "nvml.md",
        "NVML",
        "What NVIDIA's driver reports of GPUs and NVLinks. " + _SEE_NVML,
        ("nvml",),
        families=(Family("nvml-xid-", "NVML reports an Xid that takes the node out in the kernel log, too"),),
    ),
    Page(
        "dcgm.md",
        "DCGM",
        """\
What a dcgm-exporter reports of GPUs. DCGM alone takes no node out. Where the kernel log or NVML report the same fault,
DCGM is more evidence of it. """
        + _SEE_HOST,
        ("dcgm",),
    ),
    Page("pcie.md", "PCIe", "GPUs, NVSwitches, RDMA devices and NVMe disks on the PCIe bus. " + _SEE_HOST, ("pcie",)),
    Page(
        "infiniband.md",
        "InfiniBand ports, and the link of RoCE ports",
        "Link, rate and counters of each port. " + _SEE_NICS,
        ("ib",),
    ),
    Page(
        "roce.md",
        "RoCE",
        "The transport of RoCE ports. The rules about their link are in [infiniband.md](infiniband.md). " + _SEE_NICS,
        ("roce",),
    ),
    Page(
        "efa.md",
        "EFA",
        "AWS Elastic Fabric Adapter. Its driver reports every port as active, so there are only counters. " + _SEE_NICS,
        ("efa",),
    ),
    Page("ethernet.md", "Ethernet ports", "Carrier, speed and counters of each port. " + _SEE_NICS, ("eth",)),
    HOST,
)
"""In the order of the index. A row belongs to the first page that takes it."""


def page_of(row: RuleRow) -> Page:
    """The page that *row* belongs to."""
    return next((page for page in PAGES if row.source in page.sources and row.rule.startswith(page.prefix)), HOST)
