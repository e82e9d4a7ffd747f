"""A silence in words, for the log, for `healthd explain` and for the cause of a restart."""

from __future__ import annotations

from collections.abc import Sequence

from healthd.core.api.health import MemberState
from healthd.core.hang.silence import Silence, SilentMember
from healthd.core.printable import printable

MOST_RANKS = 8
"""Ranks that are listed one by one."""


def describe(silence: Silence, members: int = 0) -> str:
    """
    What each member does: `rank 1 is stopped; ranks 0, 2, 3 sleep`.

    *members*: how many the gang has, where that may be more than are listed. The others do what most do.
    """
    groups: dict[tuple[str, str], list[str]] = {}
    for member in silence.members:
        groups.setdefault(_words(member), []).append(member.rank)
    rarest_first = sorted(groups.items(), key=lambda group: len(group[1]))
    unlisted = max(0, members - len(silence.members))
    last = len(rarest_first) - 1
    return "; ".join(
        printable(_of_group(ranks, words, unlisted if number == last else 0))
        for number, (words, ranks) in enumerate(rarest_first)
    )


def why_hang(silence: Silence, members: int = 0) -> str:
    """Why it is a hang, in one sentence. *members* as for `describe`."""
    quiet = (silence.seen_at - silence.since).total_seconds()
    return (
        f"no rank has worked for {quiet:.0f} s, and the gang's own rhythm allows {silence.allowed:.0f} s: "
        f"{describe(silence, members)}"
    )


def _words(member: SilentMember) -> tuple[str, str]:
    """For one rank, and for several."""
    if "T" in member.states:
        return "is stopped (SIGSTOP)", "are stopped (SIGSTOP)"
    if "D" in member.states:
        return "waits for a device or a file system", "wait for a device or a file system"
    if member.state is MemberState.WAITING:
        return "uses a processor and does nothing else", "use a processor and do nothing else"
    return "sleeps", "sleep"


def _of_group(ranks: Sequence[str], words: tuple[str, str], unlisted: int) -> str:
    if len(ranks) + unlisted == 1:
        return f"rank {ranks[0]} {words[0]}"
    left = max(0, len(ranks) - MOST_RANKS) + unlisted
    more = f" and {left} more" if left else ""
    return f"ranks {', '.join(ranks[:MOST_RANKS])}{more} {words[1]}"
