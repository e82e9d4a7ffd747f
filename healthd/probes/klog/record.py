"""
The kernel's format of one record: `prio,seq,usec,flags[,…];text` and ` KEY=value` lines. Parsing only, no I/O.

The format is the kernel's Documentation/ABI/testing/dev-kmsg. `healthd.core` decides whether a record matters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

from healthd.clock import Clock
from healthd.core.api.model import KernelRecord

DRIFT = timedelta(milliseconds=250)
"""How far the kernel's timestamps may drift from wall time before a new fit. A wake-up is late by far less."""

_BEGINS = re.compile(
    rb";\s*(?:"
    rb"N(?:VRM|ETDEV WATCHDOG|MI|FS[:v4])|n(?:vrm|vidia|v_peer|vme|fs: s)|\[(?:nvidia|Hardware)"
    rb"|m(?:lx|ce|d[:/]|pt[23]sas)|<mlx|e(?:fa|nd_req)|i(?:b|nfiniband|w_|rdma|ommu ivhd|40iw|nvalid op|nt3)|IPoIB"
    rb"|r(?:dma_|cu|bd: )"
    rb"|p(?:cie|rint_req|rotection)|A(?:ER|borting|MD-Vi: [CE])|a(?:er|ta\d|rm-smmu)|E(?:DAC|rror Severity|XT)|\+--"
    rb"|M(?:CE|achine|emory)|C(?:MCI|PU ?\d{1,5}: (?:Mach|Core|Pack|Sock|Watch)|IFS|ritical)"
    rb"|HARDWARE|\{\d|B(?:ERT|UG|TRFS|uffer I)|GHES|g(?:hes|eneral pr)|s(?:bridge|kx|d \d|tack )|i7core"
    rb"|O(?:ut of|OM|ops)|o(?:ut of|om|peration)|attempt to acc|[Kk](?:ill|ernel (?:panic|BUG|stack|tried|resource))"
    rb"|S(?:acrifice|Error|QUASH)|Task|I(?:NFO: (?:task|rcu)|nternal err|/O err)|[Ww]atchdog"
    rb"|U(?:hhuh|nable to h)|D(?:isabling lock|azed|MAR: [V\[])|d(?:ouble f|ivide|evice)|F(?:ixing|AT-fs|2FS)"
    rb"|h(?:fi|pwdt)|t(?:hermal|imeout|raps: )|c(?:ritical|eph)|re(?:coverable|servation)|b(?:nxt_re|lk_upd|lock nvme)"
    rb"|l(?:ibceph|ockd: s)|L(?:ustre|Net)|(?:Read|Write)-err|JBD2|XFS|WARNING: Pool|VFS: file|unregister_n"
    rb"|(?:nf|ip)_conntr|[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:"
    rb"|[\w.-]{1,32}+(?:: probe of)? [0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:"  # any driver that names a PCI device
    rb")"
)
"""
How messages of interest begin. The match starts at the `;` that ends a record's header, which is found fast.

Everything that `healthd.core.diagnosis.klog` parses must be in here. Few branches: each costs time on every record of a
flood.
"""
_OOM = b" invoked oom-killer"
_CRASH = b"]: segfault at "
"""These two begin with the name of a process, so the whole record is searched for them, which is expensive."""

_ESCAPED = re.compile(rb"\\x([0-9a-fA-F]{2})")


def may_matter(raw: bytes) -> bool:
    """
    False when nothing in *raw* can be of interest to a judge. True is only a maybe.

    *raw* is one record or many joined. Almost every record of a flood is irrelevant. One test of 64 records costs a
    quarter of reading them; a test of each record would cost more than that.
    """
    return _BEGINS.search(raw) is not None or _OOM in raw or _CRASH in raw


def may_matter_or(beginnings: Iterable[str]) -> Callable[[bytes], bool]:
    """`may_matter`, where lines that begin with one of *beginnings* are of interest too."""
    heads = tuple(f";{beginning}".encode() for beginning in beginnings)
    return (lambda raw: may_matter(raw) or any(head in raw for head in heads)) if heads else may_matter


def sequence_of(raw: bytes) -> int:
    """The kernel's number of this record. Raises ValueError when *raw* is not a record."""
    return _number(raw, 1)


def microseconds_of(raw: bytes) -> int:
    """Microseconds since boot. Raises ValueError when *raw* is not a record."""
    return _number(raw, 2)


def parse_record(raw: bytes, *, boot_id: str, time: KernelTime) -> KernelRecord | None:
    """The record, or None when *raw* is not in the kernel's format."""
    head, found, body = raw.partition(b";")
    fields = head.split(b",")
    if not found or len(fields) < 4 or not all(field.isdigit() for field in fields[:3]):
        return None
    text, *tags = body.rstrip(b"\n").split(b"\n")
    return KernelRecord(
        sequence=int(fields[1]),
        at=time.at(int(fields[2])),
        text=unescape(text),
        priority=int(fields[0]),
        boot_id=boot_id,
        tags=parse_tags(tags),
    )


def parse_tags(lines: list[bytes]) -> dict[str, str]:
    """The `KEY=value` of continuation lines. Each begins with a space; anything else is skipped."""
    pairs = (line[1:].partition(b"=") for line in lines if line.startswith(b" "))
    return {unescape(key): unescape(value) for key, found, value in pairs if found}


def unescape(text: bytes) -> str:
    """Undo the kernel's `\\xNN`: it writes control characters, backslash and everything beyond ASCII so."""
    plain = _ESCAPED.sub(lambda match: bytes((int(match[1], 16),)), text) if b"\\" in text else text
    return plain.decode("utf-8", "replace")


def _number(raw: bytes, field: int) -> int:
    try:
        return int(raw.split(b",", field + 1)[field])
    except (IndexError, ValueError):
        raise ValueError(f"not a kernel record: {raw[:40]!r}") from None


class KernelTime:
    """
    Converts the kernel's microseconds since boot into wall time.

    The timestamps come from a separate clock: it stands still in suspend and is not disciplined by NTP. So the fit is
    corrected by two facts: no record is from the future, and a record that the reader waited for was written just now.
    """

    def __init__(self, clock: Clock, booted_at: datetime) -> None:
        self._clock = clock
        self._booted_at = booted_at

    def at(self, microseconds: int) -> datetime:
        """
        The wall time of a timestamp, by the present fit, and never later than now: a record after the fitted one may
        have been read, and a repair counts only for what was before it.
        """
        return min(self._stamped(microseconds), self._clock.now())

    def fit(self, microseconds: int) -> None:
        """Correct the fit with a record that was written just now."""
        age = self._clock.now() - self._stamped(microseconds)
        if age < timedelta(0) or age > DRIFT:
            self._booted_at += age

    def _stamped(self, microseconds: int) -> datetime:
        return self._booted_at + timedelta(microseconds=microseconds)
