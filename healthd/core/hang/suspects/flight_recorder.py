"""
What a dump of torch's flight recorder says of one rank: how far it came in each process group. Pure.

A dump is a dictionary: *entries* (one for each collective, the newest last), *pg_config* (the members of each group),
*pg_status* (numbers of the collectives that were enqueued and completed last). It is data of a user's process: each
field may be missing or be of another type. Point-to-point operations are left out: they have numbers of their own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from healthd.core.hang.suspects.evidence import MOST_GROUPS, MOST_RECENT, Collective, GroupProgress, Source, bounded

MOST_ENTRIES = 100_000
"""Entries that are read, the newest. The recorder keeps 2,000 unless the user sets another number."""
_LARGEST_NUMBER = 2**63
_MOST_RANKS_TEXT = 1 << 20
_LONGEST_RANK = 10


class NoDump(Exception):
    """The data is no dump of a flight recorder. The message says why."""


class _Entry(NamedTuple):
    group: tuple[str, str]
    number: int
    name: str
    is_pending: bool


def read_dump(dump: object) -> tuple[GroupProgress, ...]:
    """
    The progress of a rank in each of its groups, those in which it waits first.

    Raises NoDump where *dump* has no entries of this kind.
    """
    if not isinstance(dump, dict) or not isinstance(dump.get("entries"), list):
        raise NoDump("it has no list of entries")
    members = dict(_members(_mapping(dump.get("pg_config"))))
    enqueued = dict(_enqueued(dump["entries"], _mapping(dump.get("pg_status"))))
    groups: dict[tuple[str, str], list[_Entry]] = {group: [] for group in members}
    for entry in _entries(dump["entries"][-MOST_ENTRIES:]):
        groups.setdefault(entry.group, []).append(entry)
    progress = [_progress(group, each, members, enqueued) for group, each in groups.items()]
    return tuple(sorted(progress, key=lambda each: (not each.waits, each.group))[:MOST_GROUPS])


def _progress(
    group: tuple[str, str],
    entries: list[_Entry],
    members: Mapping[tuple[str, str], Sequence[str]],
    enqueued: Mapping[tuple[str, str], int],
) -> GroupProgress:
    entries.sort(key=lambda entry: entry.number)
    ranks = members.get(group, [])
    return GroupProgress(
        group=_title(group, ranks),
        number=max([enqueued.get(group, 0), *(entry.number for entry in entries)]),
        source=Source.RECORDER,
        waits=any(entry.is_pending for entry in entries),
        size=len(ranks),
        recent=tuple(Collective(entry.number, entry.name) for entry in entries[-MOST_RECENT:]),
    )


def _title(group: tuple[str, str], ranks: Sequence[str]) -> str:
    """Ranks that are in no common group may use one name for two groups, so the title has the members too."""
    name, description = group
    words = [word for word in (description, name) if word]
    if ranks:
        words.append(f"(rank {ranks[0]})" if len(ranks) == 1 else f"(ranks {ranks[0]}…{ranks[-1]}, {len(ranks)})")
    return bounded(" ".join(words))


def _entries(entries: Iterable[object]) -> Iterator[_Entry]:
    for raw in entries:
        entry = _mapping(raw)
        group, number = _group(entry.get("process_group")), _number(entry.get("collective_seq_id"))
        if group is None or number is None or entry.get("is_p2p") is True:
            continue
        is_over = entry.get("retired") is True or entry.get("state") == "completed"
        yield _Entry(group, number, _operation(entry.get("profiling_name")), not is_over)


def _operation(name: object) -> str:
    """`nccl:all_reduce` without the backend, which is the same on all ranks."""
    return bounded(name[:1000].rpartition(":")[2]) if isinstance(name, str) else ""


def _enqueued(entries: Iterable[object], status: Mapping[str, Any]) -> Iterator[tuple[tuple[str, str], int]]:
    """The status knows groups by an id, which the entries have beside the name."""
    numbers: dict[str, int] = {}
    for key, each in status.items():
        if (number := _number(_mapping(each).get("last_enqueued_collective"))) is not None:
            numbers[str(key)[:20]] = number
    ids: dict[tuple[str, str], set[str]] = defaultdict(set)
    for raw in entries:
        entry = _mapping(raw)
        if (group := _group(entry.get("process_group"))) is not None and isinstance(entry.get("pg_id"), int):
            ids[group].add(str(entry["pg_id"])[:20])
    for group, known in ids.items():
        yield group, max((numbers.get(each, 0) for each in known), default=0)


def _members(config: Mapping[str, Any]) -> Iterator[tuple[tuple[str, str], Sequence[str]]]:
    """The ranks in each group. Groups without a name are those of backends that name none."""
    for raw in list(config.values())[:MOST_GROUPS]:
        each = _mapping(raw)
        if (group := _group((each.get("name"), each.get("desc")))) is not None and group[0]:
            yield group, _ranks(each.get("ranks"))


def _ranks(text: object) -> Sequence[str]:
    """The numbers in a text such as `[0, 1, 2]`."""
    if not isinstance(text, str) or len(text) > _MOST_RANKS_TEXT:
        return ()
    words = (word.strip() for word in text.strip("[] ").split(","))
    return [word for word in words if word.isdecimal() and len(word) < _LONGEST_RANK]


def _group(value: object) -> tuple[str, str] | None:
    if isinstance(value, tuple | list) and len(value) == 2 and all(isinstance(part, str) for part in value):
        return bounded(value[0]), bounded(value[1])
    return None


def _number(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < _LARGEST_NUMBER else None


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
