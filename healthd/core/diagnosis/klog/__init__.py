"""
Reading kernel-log lines: prefix grammar, then message grammar. Pure; the judging is in `healthd.core.diagnosis.xid`.
"""

from __future__ import annotations

from healthd.core.diagnosis.klog.device_tag import KERNEL_LOGS, TAGGED, is_of_its_device
from healthd.core.diagnosis.klog.host import parse_host
from healthd.core.diagnosis.klog.kernel import parse_kernel
from healthd.core.diagnosis.klog.message import (
    CONTRACT,
    LinkFault,
    Load,
    Message,
    MessageKind,
    Mig,
    first_address,
    normal_address,
)
from healthd.core.diagnosis.klog.network import parse_network
from healthd.core.diagnosis.klog.nvidia import parse_nvidia
from healthd.core.diagnosis.klog.oom import OomKill, parse_oom_kill
from healthd.core.diagnosis.klog.prefix import LONGEST_PREFIX, KernelLine, names_its_writer, parse_line, unescape
from healthd.core.diagnosis.klog.process import begins_with_a_name, parse_process, without_names
from healthd.core.diagnosis.klog.stitch import Partial, stitch
from healthd.core.diagnosis.klog.storage import parse_storage

__all__ = [
    "CONTRACT",
    "KERNEL_LOGS",
    "LONGEST_MESSAGE",
    "LONGEST_PREFIX",
    "TAGGED",
    "KernelLine",
    "LinkFault",
    "Load",
    "Message",
    "MessageKind",
    "Mig",
    "OomKill",
    "Partial",
    "begins_with_a_name",
    "first_address",
    "is_of_its_device",
    "names_its_writer",
    "normal_address",
    "parse_line",
    "parse_message",
    "parse_oom_kill",
    "stitch",
    "unescape",
    "without_names",
]

LONGEST_MESSAGE = 8192
"""The kernel cuts records at 1 to 2 KiB. What a file holds beyond this is not read."""


def parse_message(text: str) -> Message | None:
    """Parse one kernel message, which must start with *text*. None if no grammar of healthd knows it."""
    text = text[:LONGEST_MESSAGE].strip("\r\n\x00 ")
    if begins_with_a_name(text):
        return parse_process(text)
    known = parse_host(text) or parse_nvidia(text) or parse_network(text)
    return known or parse_kernel(text) or parse_storage(text)
