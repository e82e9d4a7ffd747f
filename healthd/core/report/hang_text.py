"""
A gang that hangs, for a terminal: who holds up the others and who says so, then what every rank was doing.

Ranks that do the same share a line, so that a gang of thousands fits on a screen. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from healthd.core.hang.describe import SURE
from healthd.core.hang.suspects.evidence import RankEvidence, TaskState
from healthd.core.hang.suspects.places import spoken_place
from healthd.core.hang.suspects.vote import HangLocation, Suspect, spoken_process
from healthd.core.phrases import some
from healthd.core.printable import printable
from healthd.core.report.listing.table import Column, lines_of

MOST_LINES = 40
"""Lines of the table. The rest are counted."""
_MOST_RANGES = 6
_COLUMNS = (Column("RANKS"), Column("NODES"), Column("SUSPECT"), Column("DOING", flexible=True))
_NOTHING_KNOWN = "nothing is known"


def hang_lines(
    location: HangLocation, ranks: Sequence[RankEvidence], *, width: int | None = None, most: int = MOST_LINES
) -> Iterator[str]:
    """
    The suspects of *location* with their witnesses, then a table of *ranks*, suspects first.

    *width* is that of the terminal; None: no limit. Text of users is escaped.
    """
    yield from _verdict(location)
    if not ranks:
        return
    rows = _rows(location, ranks)
    yield ""
    yield from lines_of(_COLUMNS, rows[:most], width=width)
    if len(rows) > most:
        yield f"and {len(rows) - most:,} lines more"


def _verdict(location: HangLocation) -> Iterator[str]:
    if not location.suspects:
        yield f"no rank is named: {location.reason}"
    for suspect in location.suspects:
        yield printable(f"{_who(suspect)} holds up the others ({_spoken(suspect)} sure)")
        yield from (printable(f"  {witness.source}: {witness.words}") for witness in suspect.witnesses)
    if location.more_suspects:
        yield f"and {location.more_suspects:,} suspects more"


def _spoken(suspect: Suspect) -> str:
    return f"{min(suspect.confidence, SURE):.0%}"


def _who(suspect: Suspect) -> str:
    places = [("pod ", suspect.pod), ("node ", suspect.node), ("", some(suspect.gpus))]
    where = ", ".join(kind + name for kind, name in places if name)
    return f"rank {suspect.rank}" + (f" ({where})" if where else "")


def _rows(location: HangLocation, ranks: Sequence[RankEvidence]) -> list[tuple[str, str, str, str]]:
    confidence = {suspect.rank: _spoken(suspect) for suspect in location.suspects}
    alike: dict[tuple[str, str], list[RankEvidence]] = defaultdict(list)
    for each in sorted(ranks, key=lambda each: each.rank):
        alike[confidence.get(each.rank, ""), doing_of(each)].append(each)
    order = sorted(alike, key=lambda key: (not key[0], alike[key][0].rank))
    return [(_ranges(alike[key]), _nodes(alike[key]), key[0], key[1]) for key in order]


def doing_of(evidence: RankEvidence) -> str:
    """What a rank was doing, by the source that says most."""
    process = evidence.process
    if process is not None and process.state not in (TaskState.SLEEPING, TaskState.RUNNING, TaskState.UNKNOWN):
        return spoken_process(process).partition(") ")[2] or spoken_process(process)
    if evidence.lost_by_ras:
        return f"{evidence.lost_by_ras} on the RAS network"
    if waiting := next((group for group in evidence.groups if group.waits), None):
        name = waiting.recent[-1].name if waiting.recent else "collective"
        return f"waits in {name} {waiting.number:,} of {waiting.group}"
    if evidence.stack is not None and evidence.stack.frames:
        return f"in {spoken_place(evidence.stack)}"
    if process is not None and process.state is not TaskState.UNKNOWN:
        return f"{process.state}" + (f" in {process.syscall}" if process.syscall else "")
    return _last_line(evidence) or _NOTHING_KNOWN


def _last_line(evidence: RankEvidence) -> str:
    return f"last wrote: {evidence.log[-1]}" if evidence.log else ""


def _ranges(ranks: Sequence[RankEvidence]) -> str:
    """`0-2,4` for the ranks 0, 1, 2 and 4."""
    numbers = [each.rank for each in ranks]
    starts = [numbers[0], *(after for before, after in pairwise(numbers) if after != before + 1)]
    ends = [*(before for before, after in pairwise(numbers) if after != before + 1), numbers[-1]]
    spans = [f"{start}" if start == end else f"{start}-{end}" for start, end in zip(starts, ends, strict=True)]
    shown = ",".join(spans[:_MOST_RANGES])
    return shown if len(spans) <= _MOST_RANGES else f"{shown},… ({len(numbers):,})"


def _nodes(ranks: Sequence[RankEvidence]) -> str:
    nodes: Mapping[str, None] = dict.fromkeys(each.node for each in ranks if each.node)
    return ", ".join(nodes) if len(nodes) <= 1 else f"{len(nodes):,} nodes"
