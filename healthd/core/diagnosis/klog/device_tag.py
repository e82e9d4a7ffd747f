"""
Which device a record is about, by the record's own `DEVICE=`: the kernel adds it to what a driver prints about a
device.

A process can choose text, but never a tag. A log without tags (a file, the output of dmesg) does not allow this check.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from healthd.core.diagnosis.klog.message import FULL_ADDRESS

TAGGED = frozenset({"kmsg", "journal"})
"""The sources of records that come with their tags."""
KERNEL_LOGS = TAGGED | {"file"}
"""All sources of kernel records. Probes have other names."""

_SPEAKS_FOR = re.compile(rf"[\w.-]{{1,32}} (?P<device>{FULL_ADDRESS}(?::pcie\w{{2,4}})?)(?=[: ])", re.ASCII)
"""`driver 0000:3b:00.0: …`, as dev_printk writes it, and a service of a PCIe port (`…:pcie004`)."""


def is_of_its_device(text: str, tags: Mapping[str, str]) -> bool:
    """Whether the record's `DEVICE=+pci:0000:3b:00.0` agrees with the device that *text* begins with, if it does."""
    found = _SPEAKS_FOR.match(text)
    return found is None or tags.get("DEVICE", "").partition(":")[2].lower() == found["device"].lower()
