"""
The grammar of the prefix of a kernel message in dmesg, journal, syslog and raw /dev/kmsg text.

The prefix must be understood from the start of the line to the message; nothing is searched for. So a line of user
space that quotes a kernel message (sudo, audit, kubelet, an agent's own log) never passes for a kernel line: its tag is
not `kernel`.
"""

from __future__ import annotations

import re

import msgspec

LONGEST_PREFIX = 400
"""More than any log daemon writes before the message. Limits the work on a line of noise."""

_MONTH = r"[^\W\d_]{2,10}\.?|\d{1,2}[月월]"
_CLOCK = r"\d{1,2}:\d{2}:\d{2}(?:[.,]\d{1,9})?(?: ?[AP]M)?"
_OFFSET = r"Z|[+-]\d{2}(?::?\d{2})?"
_ZONE = r"[A-Z]{2,5}"
"""CEST and similar zones. A log level looks the same, so a zone counts only before the year or the kernel's tag."""

_RAW = re.compile(r"(?P<priority>\d{1,4}),(?P<sequence>\d{1,20}),\d{1,20}(?:,[^;,]{1,16}(?:,[^;]{1,64})?)?;")
"""Kernels before 3.6 write no flags."""
_QUOTING = re.compile(
    r"(?:\ufeff|\*\*|`{1,3}|\+?> ?|\.\.\. ?|… ?|\[(?:\.\.\.|…|\s{0,4}|time(?:stamp)?)\] ?"
    r"|(?:[-*•+]|\d{1,4}\.) ?(?=\[\s{0,12}\d|[^\W\d_]{3} {1,2}\d{1,2} \d{2}:))+"
)
_LEVEL = re.compile(r"<(?P<priority>\d{1,3})>(?:1 (?=\d{4}-))?")
_DECODED = re.compile(r"(?P<facility>[a-z]\w{1,9}) {0,8}: ?[a-z]{1,8} {0,8}: ?")
_INSTANT = rf"\[?\d{{4}}-\d{{2}}-\d{{2}}[T ]{_CLOCK} ?(?:{_OFFSET})?\]?"
_ISO = re.compile(rf"{_INSTANT}(?=\s)")
_WEEKDAY_ISO = re.compile(rf"[^\W\d_]{{2,6}}\.? \d{{4}}-\d{{2}}-\d{{2}} {_CLOCK}(?=\s)")
_DATE = re.compile(
    rf"(?:[^\W\d_]{{2,6}}\.? |\d{{4}} )?(?:(?:{_MONTH}) {{1,2}}\d{{1,2}}|\d{{1,2}}\.? (?:{_MONTH})) "
    rf"(?:\d{{4}} )?{_CLOCK}(?:(?: {_ZONE})? \d{{4}})?(?=\s)"
)
_CLOCK_ONLY = re.compile(rf"{_CLOCK}(?=\s)")
_UNIX = re.compile(r"\d{9,11}\.\d{1,9}(?=\s)")
_DELTA = r"<\s{0,12}\d{1,9}\.\d{1,9}\s?>"
_SECONDS = re.compile(rf"\[(?:\s{{0,12}}\d{{1,12}}\.\d{{1,9}}(?: {_DELTA}|\s{{1,24}})?|{_DELTA})\]")
_USER_FACILITY = re.compile(
    rf"\[\s{{0,8}}(?:\+\d{{1,8}}\.\d{{1,9}}|[^\W\d_]{{3}} {{0,2}}\d{{1,2}} \d{{1,2}}:\d{{2}}"
    rf"|[^\]\[]{{3,40}} {_CLOCK}(?: [A-Z]{{2,5}})? \d{{4}}(?: {_DELTA})?"
    rf"|[^\]\[]{{3,40}} \d{{4}} {_CLOCK})\]"
)
_CALLER = re.compile(r"\[\s{0,8}[TC]\d{1,10}(?:@C\d{1,5})?\]")
_TAG = re.compile(r"\s{0,4}kernel(?:\[0\])?:\s?")
_RFC5424 = re.compile(r"\s{1,4}kernel(?: [\w.-]{1,48}){2} (?:-|\[[^\]]{0,200}\])\s")
_SELECTOR = r"\.(?:emerg|alert|crit|err|error|warn|warning|notice|info|debug)\s"
_HOST = rf"(?:\s{{1,4}}{_ZONE})?\s{{1,4}}(?!(?!kern\.)[a-z0-9]{{2,8}}{_SELECTOR})[\w.:@/-]{{1,255}}"
"""Busybox and OpenWrt put facility and level before the tag. Any facility but the kernel's marks a program's line."""
_HOST_AND_TAG = re.compile(rf"{_HOST}(?:\s{{1,4}}kern(?={_SELECTOR})\.\w{{1,8}})?(?:{_TAG.pattern}|{_RFC5424.pattern})")
_HYPERVISOR = re.compile(r"\s{1,4}(?:\w{1,8}\(\d{1,5}\) )?(?:vmkernel: )?cpu\d{1,5}:\d{1,10}(?: opID=\w{1,32})?\)\s?")
_FILE = re.compile(
    r"[\w./-]{1,255}:(?:\d{1,9}:)?(?=[^\W\d_]{3} {1,2}\d|\d{4}-)(?=[^\n]{15,90} kernel: )"
    r"|(?:(?=[\w-]{0,64}[./])[\w./-]{1,255}:)?(?:\d{1,9}[:-])?(?=\[\s{0,12}\d{1,12}\.\d)"
    r"|\d{1,9}[:-](?=[^\W\d_]{3} {1,2}\d{1,2} \d)"
)
"""What grep puts before a matching line: the file, the line's number, or both."""
_VGPU_MANAGER = re.compile(rf"{_HOST}(?=\s{{1,4}}nvidia-vgpu(?:d|-mgr)\[)")
"""Programs whose lines are read beside the kernel's: the host side of the driver. They print no Xid of their own."""
_COLOUR = re.compile(r"(?:\x1b|\^\[)\[[0-9;]{0,16}[mK]")
"""As dmesg and grep print colours, and as `cat -v` shows them."""
_HOST_TAG = re.compile(r"(?=[a-zA-Z_.-]{0,64}\d)[\w.-]{1,64}(?::| \||: \|)\s{1,4}(?=\[|kernel:)")
"""What pdsh and similar tools put before a line. Host names have digits; words that people put there have none."""
_CUT_HEADER = re.compile(r"[\w.-]{1,255} (?=kernel: )")
_TALOS = re.compile(rf"(?:[\w.:-]{{1,64}}: )?kern: {{1,8}}[a-z]{{1,8}}: {_INSTANT}: ?")
"""How Talos shows the kernel's ring: node, facility, level and time."""
_NETCONSOLE = re.compile(r"\s{1,4}(?=[a-zA-Z_.-]{0,64}\d)[\w.-]{1,255}(?=\s{1,2}\[\s{0,12}\d{1,12}\.\d{3,9}\])")
"""What a log daemon writes for records from the network: its own timestamp, the sender, the record as in dmesg."""
_RELAYED = re.compile(rf"\s{{0,4}}(?:{_DATE.pattern}|{_ISO.pattern})(?:{_TAG.pattern}|{_HOST}{_TAG.pattern})")
"""A whole header after the kernel's tag: the line passed through a second log."""

_WRITER = re.compile(r"\bkern(?:el)?(?:\[0\])?(?=\s{0,9}[.:\s])")
"""How a header names the writer: a facility or a tag. Not `<3>`: `dmesg --raw` writes the level there alone."""

_BLANK = frozenset({" ", "\t"})


class KernelLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a log that the kernel wrote. *text* is the bare message. *sequence* is known for raw records only."""

    text: str
    sequence: int = -1


def parse_line(line: str) -> KernelLine | None:
    """Take any known prefix off *line*. None if the kernel did not write the line."""
    if "\x1b" in line or "^[[" in line:
        line = _COLOUR.sub("", line)
    line = line.strip("\r\n\x00 ")
    if found := _RAW.match(line):
        return _raw_line(line, found)
    head = line[:LONGEST_PREFIX]
    end = _after_header(head)
    if end is None:
        return None
    end = _skip(head, end, _SECONDS, _USER_FACILITY, _CALLER)
    return KernelLine(text=line[end:].lstrip("\ufeff \t").removesuffix("**").rstrip("`"))


def names_its_writer(line: str) -> bool:
    """
    Whether *line*, which `parse_line` can read, names its writer, as plain dmesg does not.

    The kernel's ring also holds what processes wrote into it; only the facility distinguishes them.
    """
    line = _COLOUR.sub("", line).strip("\r\n\x00 ")
    head = line[:LONGEST_PREFIX]
    return _RAW.match(line) is not None or _WRITER.search(head, 0, _after_header(head) or 0) is not None


def unescape(text: str) -> str:
    """Undo the `\\xNN` escapes of /dev/kmsg, which stand for bytes of UTF-8."""
    if "\\x" not in text:
        return text
    plain = _ESCAPE.sub(lambda found: chr(int(found[1], 16)), text)
    # Escaped bytes of one character stand side by side; what is not valid UTF-8 stays as its code points.
    return _BYTES.sub(_decoded, plain)


_ESCAPE = re.compile(r"\\x([0-9a-fA-F]{2})")
_BYTES = re.compile(r"[\x80-\xff]{2,}")


def _decoded(found: re.Match[str]) -> str:
    try:
        return found[0].encode("latin-1").decode("utf-8")
    except UnicodeDecodeError:
        return found[0]


def _raw_line(line: str, found: re.Match[str]) -> KernelLine | None:
    if not _is_kernel(found["priority"]):
        return None
    return KernelLine(text=unescape(line[found.end() :]), sequence=int(found["sequence"]))


def _is_kernel(priority: str) -> bool:
    """Facility 0, which user space cannot write."""
    return int(priority) < 8


def _after_header(head: str) -> int | None:
    """Where the header of the log daemon ends. None if it names another writer than the kernel."""
    at = _skip(head, 0, _QUOTING)
    if found := _LEVEL.match(head, at):
        if not _is_kernel(found["priority"]):
            return None
        at = found.end()
    if (found := _DECODED.match(head, at)) and found["facility"] == "kern":
        return _after_decoded_time(head, found.end())
    if found := _TALOS.match(head, at):
        return found.end()
    if found := _FILE.match(head, at) or _HOST_TAG.match(head, at):
        at = found.end()
    if found := _CUT_HEADER.match(head, at):
        at = found.end()
    return _after_stamp(head, at)


def _after_decoded_time(head: str, at: int) -> int:
    found = _ISO.match(head, at)
    return found.end() if found else at


def _after_stamp(head: str, at: int) -> int:
    """The position after `<stamp> <host> kernel:`, or after a bare timestamp, or *at* itself."""
    for stamp in (_SECONDS, _DATE, _ISO, _USER_FACILITY, _WEEKDAY_ISO, _UNIX, _CLOCK_ONLY):
        if found := stamp.match(head, at):
            return _after_tag(head, found.end())
    tag = _TAG.match(head, at)
    return _after_relay(head, tag.end()) if tag else at


def _after_relay(head: str, at: int) -> int:
    found = _RELAYED.match(head, at)
    return found.end() if found else at


def _after_tag(head: str, at: int) -> int:
    """The position after host and tag of the kernel, or *at* where the message follows the timestamp at once."""
    for grammar in (_TAG, _HOST_AND_TAG, _RFC5424, _HYPERVISOR, _VGPU_MANAGER, _NETCONSOLE):
        if found := grammar.match(head, at):
            return _after_relay(head, found.end())
    return at


def _skip(head: str, at: int, *grammars: re.Pattern[str]) -> int:
    """The position after any of *grammars*, in any order, each with blanks around it."""
    while True:
        while head[at : at + 1] in _BLANK:
            at += 1
        for grammar in grammars:
            if found := grammar.match(head, at):
                at = found.end()
                break
        else:
            return at
