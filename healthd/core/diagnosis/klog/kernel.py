"""
The grammar of the kernel's own failures: stalls, oopses, NMIs, heat, devices that left the bus.

Source: `kernel/hung_task.c`, `kernel/watchdog*.c`, `kernel/workqueue.c`, `kernel/rcu`, `arch/*/kernel/traps.c`,
`arch/x86/mm/fault.c`, `arch/arm64/mm/fault.c`, `kernel/panic.c`, `arch/x86/kernel/nmi.c`, `mm/memory.c`,
`arch/x86/kernel/cpu/mce/therm_throt.c`, `drivers/thermal`, `drivers/pci`, `drivers/iommu` of Linux, old and new.
"""

from __future__ import annotations

import re

from healthd.core.diagnosis.klog.message import FULL_ADDRESS, Message, MessageKind, first_address

_STALL = re.compile(
    r"INFO: task .{1,80}?:[0-9]{1,10} (?:<\w{1,16}> )?(?:is )?blocked "
    r"|(?:NMI )?watchdog: (?:BUG: soft lockup|(?:CPU[0-9]{1,5}: )?Watchdog detected hard LOCKUP)"
    r"|(?:CPU[0-9]{1,5}: )?Watchdog detected hard LOCKUP|BUG: (?:soft lockup|workqueue lockup)\b"
    r"|(?:rcu: )?(?:INFO: )?rcu\w{0,24} (?:self-)?(?:detected .{0,16}stalls?|kthread starved)\b",
    re.ASCII,
)
_EXPEDITED = re.compile(
    r"(?<=expedited stalls on CPUs/tasks: \{)[^}]{0,4000}\} (?P<jiffies>[0-9]{1,9}) jiffies", re.ASCII
)
SHORT_STALL = 2000
"""Jiffies: 2 to 20 seconds. Kernels that are built for phones also report stalls of 20 ms."""
_OOPS = re.compile(
    r"BUG: |kernel BUG at |Kernel BUG at |Oops(?: - |(?:: .{1,160}?)? \[#\d)|Internal error: |Unable to handle kernel "
    r"|general protection fault(?:, |: [0-9a-f]{4} \[#)"
    r"|(?:invalid opcode|double fault|divide error|stack segment|stack guard page|int3|traps: double fault)"
    r"(?:, .{1,64})?: [0-9a-f]{4} \[#"
    r"|Kernel panic - not syncing|SError Interrupt on CPU|Fixing recursive fault but reboot is needed"
    r"|Kernel stack overflow|kernel tried to execute NX-protected page",
    re.ASCII,
)
_NMI = re.compile(
    r"Uhhuh\. NMI received|NMI: (?:PCI system error|IOCK error|[Mm]emory parity error|Not continuing)"
    r"|Dazed and confused|hpwdt: .{0,200}NMI",
    re.ASCII,
)
_THERMAL = re.compile(
    r"CPU[0-9]{1,5}: (?:Core|Package|Socket) (?:temperature|power limit)"
    r"|(?:thermal(?:_sys| thermal_zone[0-9]{1,4})?: .{0,64}?)?[Cc]ritical temperature reached",
    re.ASCII,
)
_PCIE = re.compile(
    rf"(?:pciehp {FULL_ADDRESS}:pcie\w{{2,4}}: Slot|(?:[\w.-]{{1,32}} )?{FULL_ADDRESS}: (?:pciehp: "
    r"|not ready [0-9]{1,9}ms after|[Uu]nable to change power state|[Rr]efused to change power state"
    r"|.{0,64}device inaccessible|can't change power state|broken device|retraining failed|AMD-Vi: Event logged)"
    r"|DMAR: (?:\[(?:DMA|INTR)|VT-d detected )|(?:iommu ivhd\d{1,3}: )?AMD-Vi: (?:Event logged|Completion-Wait loop)"
    r"|arm-smmu-v3 [\w.-]{1,48}: (?:event(?:: | 0x)|CMD|EVTQ |unexpected global|device has entered))",
    re.ASCII,
)
_GRAMMARS = (
    (MessageKind.STALL, _STALL),
    (MessageKind.OOPS, _OOPS),
    (MessageKind.NMI, _NMI),
    (MessageKind.THERMAL, _THERMAL),
    (MessageKind.PCIE, _PCIE),
)


def parse_kernel(text: str) -> Message | None:
    """Read a message of the kernel about itself; None if it is none of these."""
    for kind, grammar in _GRAMMARS:
        if grammar.match(text):
            pci = first_address(text) if kind is MessageKind.PCIE else None
            return Message(kind=kind, text=text, pci=pci, fatal=_is_long(text) if kind is MessageKind.STALL else None)
    return None


def _is_long(text: str) -> bool | None:
    """Whether an expedited stall was longer than a short one. A stall without a length counts as short."""
    if "expedited stalls" not in text:
        return None
    found = _EXPEDITED.search(text)
    return found is not None and int(found["jiffies"]) >= SHORT_STALL
