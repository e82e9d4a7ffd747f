"""A silence, and who holds up the others, in words: for logs, for `healthd explain` and for the cause of a restart."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from healthd.core.api.health import MemberState
from healthd.core.hang.silence import Silence, SilentMember
from healthd.core.hang.suspects.vote import HangLocation
from healthd.core.printable import printable

MOST_RANKS = 8
"""Ranks that are listed one by one."""
_ENDED = ("has ended", "have ended")
SURE = 0.99
"""The highest confidence that is shown: no witness is certain."""


def describe(silence: Silence, members: int = 0) -> str:
    """
    What each member does: `rank 1 is stopped; ranks 0, 2, 3 sleep`. Those that had ended come first.

    *members*: how many the gang has, where that may be more than are listed. The others do what most do.
    """
    groups: dict[tuple[str, str], list[str]] = {}
    for member in silence.members:
        groups.setdefault(_words(member), []).append(member.rank)
    ended = [printable(_of_group(silence.ended, _ENDED, 0))] if silence.ended else []
    rarest_first = sorted(groups.items(), key=lambda group: len(group[1]))
    unlisted = max(0, members - len(silence.members))
    last = len(rarest_first) - 1
    shown = (
        printable(_of_group(ranks, words, unlisted if number == last else 0))
        for number, (words, ranks) in enumerate(rarest_first)
    )
    return "; ".join([*ended, *shown])


def why_hang(silence: Silence, members: int = 0) -> str:
    """Why it is a hang, in one sentence. *members* as for `describe`."""
    quiet = (silence.seen_at - silence.since).total_seconds()
    what = f"no rank has worked for {quiet:.0f} s, and the gang's own rhythm allows {silence.allowed:.0f} s"
    if silence.is_start:
        what = f"no rank has done anything for {quiet:.0f} s, before the rhythm of every rank was known"
    return f"{what}: {describe(silence, members)}"


def who_holds_up(location: HangLocation, named: Callable[[int], str] = str) -> str:
    """
    Who holds up the others and why, or why no rank is named. Safe for a terminal.

    *named*: what the gang calls the member with that rank.
    """
    suspects = location.suspects
    if not suspects:
        return printable(f"no rank is named: {location.reason}")
    first, words = suspects[0], next((witness.words for witness in suspects[0].witnesses), "")
    why = f"({min(first.confidence, SURE):.0%} sure): {words}"
    if len(suspects) == 1:
        where = f" on {first.node}" if first.node else ""
        return printable(f"rank {named(first.rank)}{where} holds up the others {why}")
    more = len(suspects) - MOST_RANKS + location.more_suspects
    listed = ", ".join(named(suspect.rank) for suspect in suspects[:MOST_RANKS])
    others = f" and {more} more" if more > 0 else ""
    return printable(f"ranks {listed}{others} hold up the others; rank {named(first.rank)} {why}")


def _words(member: SilentMember) -> tuple[str, str]:
    """For one rank, and for several."""
    if "T" in member.states:
        return "is stopped (SIGSTOP)", "are stopped (SIGSTOP)"
    if set(member.states) == {"Z"}:
        return "is dead (a zombie)", "are dead (zombies)"
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
