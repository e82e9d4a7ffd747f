"""
What the witnesses of a hang said, as it is stored with the run beside its silence, and shown by `healthd explain`.

Everything in it comes from processes of users, so it is bounded when it is written, and again when it is read.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from healthd.core.hang.history import ActivityHistory, most_telling
from healthd.core.hang.silence import Silence
from healthd.core.hang.suspects.evidence import GroupProgress, RankEvidence
from healthd.core.hang.suspects.places import place_of
from healthd.core.hang.suspects.vote import HangLocation
from healthd.core.report.activity_picture import ActivityPicture
from healthd.core.report.hang_text import hang_lines
from healthd.core.untrusted import InvalidText, Moment, read_json

ANNOTATION_HANG = "healthd.dev/hang-evidence"
"""On the Job: JSON of the `HangRecord` of its last silence."""
LARGEST = 64 << 10
"""Bytes. The annotations of an object share 256 KiB."""


class HangRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Who holds up the others, and all that is known of each rank."""

    since: Moment
    """The beginning of the silence that the witnesses were asked for."""
    location: HangLocation
    ranks: tuple[RankEvidence, ...] = ()
    left_out: int = 0
    """Ranks that had no room."""
    history: ActivityHistory | None = None
    """What each rank did in the last minutes. None: an older healthd kept none."""


def encoded(record: HangRecord) -> str:
    """*record* in at most `LARGEST` bytes: the less telling parts go first, then ranks that are not suspects."""
    suspects = {suspect.rank for suspect in record.location.suspects}
    if record.history is not None:
        record = replace(record, history=most_telling(record.history, suspects))
    if len(text := msgspec.json.encode(record)) <= LARGEST:
        return text.decode()
    for shorter in (_without_details, _what_the_table_needs):
        ranks = tuple(shorter(each) for each in record.ranks)
        if len(text := msgspec.json.encode(replace(record, ranks=ranks))) <= LARGEST:
            return text.decode()
    ranks = tuple(sorted(ranks, key=lambda each: each.rank not in suspects))
    while ranks and len(text) > LARGEST:
        ranks = ranks[: len(ranks) // 2]
        text = msgspec.json.encode(replace(record, ranks=ranks, left_out=len(record.ranks) - len(ranks)))
    return text.decode()


def _without_details(evidence: RankEvidence) -> RankEvidence:
    kept = {"groups": _waiting_group(evidence), "log": evidence.log[-1:], "troubles": evidence.troubles[:1]}
    return replace(evidence, network=None, **kept)


def _what_the_table_needs(evidence: RankEvidence) -> RankEvidence:
    stack = evidence.stack and replace(evidence.stack, frames=place_of(evidence.stack))
    groups = tuple(replace(group, recent=group.recent[-1:]) for group in _waiting_group(evidence))
    return replace(evidence, stack=stack, network=None, groups=groups, log=evidence.log[-1:], troubles=())


def _waiting_group(evidence: RankEvidence) -> tuple[GroupProgress, ...]:
    return tuple(group for group in evidence.groups if group.waits)[:1]


def record_of(annotations: Mapping[str, str], silence: Silence | None) -> HangRecord | None:
    """The record of *silence*. None: there is none, it is of another silence, or it cannot be read."""
    text = annotations.get(ANNOTATION_HANG, "")
    if silence is None or not text:
        return None
    try:
        record = read_json(text, HangRecord)
    except InvalidText:
        return None
    return record if record.since == silence.since else None


def record_lines(record: HangRecord, width: int | None) -> list[str]:
    """The suspects with their witnesses, and the table of ranks. *width* is that of the terminal; None: no limit."""
    lines = list(hang_lines(record.location, record.ranks, width=width))
    return [*lines, f"and {record.left_out:,} ranks more"] if record.left_out else lines


def picture_of(record: HangRecord) -> ActivityPicture | None:
    """What the ranks did in the last minutes. None: it was not kept."""
    if record.history is None or not record.history.ranks:
        return None
    suspects = frozenset(suspect.rank for suspect in record.location.suspects)
    nodes = {each.rank: each.node for each in record.ranks}
    return ActivityPicture(history=record.history, last_work=record.since, suspects=suspects, nodes=nodes)
