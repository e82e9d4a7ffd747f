"""
The grammar of messages about the machine itself: PCIe errors (AER, DPC), machine checks. Out of memory is in `oom.py`.

Source: `drivers/pci/pcie/aer.c`, `arch/x86/kernel/cpu/mce`, `drivers/edac` of Linux, with the wordings of old and new
versions.
"""

from __future__ import annotations

import re

from healthd.core.diagnosis.klog.message import FULL_ADDRESS, Message, MessageKind, first_address
from healthd.core.diagnosis.klog.oom import parse_oom
from healthd.core.diagnosis.klog.process import without_names

_DEVICE = rf"(?:[a-zA-Z0-9_.-]{{1,32}} )?{FULL_ADDRESS}:(?:pcie\w{{2,4}}:)?"
_AER = re.compile(
    rf"(?:{_DEVICE} ?(?:"
    r"AER:"
    r"|PCIe Bus Error:"
    r"|DPC[: ]"
    r"|EDR: "
    r"|\+-{4,8} PCI-Express Device Error"
    r"|Error Severity\s{0,12}: "
    r"|\s{0,4}device \[[0-9a-fA-F]{4}:[0-9a-fA-F]{4}\] error status/mask="
    r"|\s{1,8}\[ ?[0-9]{1,2}\] [A-Z]"
    r"|\s{0,8}TLP Header:"
    r"|\s{0,4}Error of this Agent(?: is|\()"
    r"|can't recover \(no error_detected callback\)"
    r"|[Dd]evice recovery (?:failed|successful)"
    r"|broadcast \w{1,24} message"
    r"|aer_(?:status|layer|agent|uncor_severity)"
    r"|(?:Root|Downstream|Upstream) \w{0,12} ?[Ll]ink has been reset"
    r")|AER: (?:Multiple )?(?:C|Unc)orrect(?:ed|able) (?:\(|error )|pcieport: AER|aer_recover_queue)",
    re.ASCII,
)
_MCE = re.compile(
    r"(?:\{[0-9]{1,9}\})?\[Hardware Error\]:"
    r"|mce: |mce_\w{1,24}: "
    r"|Machine check:? "
    r"|MCE[: ]"
    r"|BERT: Error records"
    r"|CMCI storm (?:detected|subsided)"
    r"|EDAC \S{1,24}(?: \S{1,24})?: "
    r"|(?:sbridge|i7core|skx)\w{0,8}: HANDLING MCE MEMORY ERROR"
    r"|CPU ?\d{1,5}: Machine Check(?: Exception| Event)?: "
    r"|HARDWARE ERROR\b"
    r"|ghes_edac: |GHES: "
    r"|Memory failure: 0x"
    r"|Disabling lock debugging due to machine check"
    r"|[Kk]ernel panic - not syncing: (?:Fatal )?(?:[Mm]achine check|hardware error)"
    r"|Kernel panic - not syncing: Timeout: Not all CPUs entered broadcast exception handler",
    re.ASCII,
)
_MCE_WORSE = re.compile(
    r"(?i)uncorrected|fatal|\bUE\b|(?<!no )action required|Processor context corrupt|panic", re.ASCII
)
_OF_LAST_BOOT = re.compile(r"\[Hardware Error\]:\s{1,4}(?:event severity: |Error [0-9]{1,4}, type: )", re.ASCII)
"""Errors that the firmware kept from the last boot are printed without the number that a current report begins with."""
_MCE_STATUS = re.compile(
    r"Machine Check(?: Exception| Event)?: {0,24}[0-9a-f]{1,16} Bank [0-9]{1,3}: (?P<status>[0-9a-f]{16})",
    re.ASCII,
)


def parse_host(text: str) -> Message | None:
    """Read a PCIe error, a machine check or an OOM kill; None if it is none of these."""
    if _AER.match(text):
        return Message(kind=MessageKind.AER, text=text, pci=first_address(text), fatal=_aer_fatal(text))
    if _MCE.match(text):
        plain = without_names(text)
        return Message(kind=MessageKind.MCE, text=text, pci=first_address(plain), fatal=_mce_fatal(plain))
    return parse_oom(text)


def _aer_fatal(text: str) -> bool | None:
    lower = text.lower()
    if "uncorrect" in lower or any(words in lower for words in ("can't recover", "recovery failed", "reset failed")):
        return "non-fatal" not in lower and "nonfatal" not in lower
    return False if "correct" in lower else None


def _mce_fatal(text: str) -> bool | None:
    if _OF_LAST_BOOT.match(text):
        return None
    found = _MCE_STATUS.search(text)
    if found:
        return bool(int(found["status"], 16) >> 61 & 1)  # MCi_STATUS.UC: the hardware did not correct it
    return True if _MCE_WORSE.search(text) else None
