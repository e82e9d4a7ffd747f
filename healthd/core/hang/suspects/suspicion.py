"""What of a vote goes into the cause of a recovery: who is suspected, how strongly, and where in the program. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import blake2s

from healthd.core.api.recoveries import HangSuspect
from healthd.core.hang.suspects.evidence import Frame, RankEvidence, Source, Stack
from healthd.core.hang.suspects.places import function_of, spoken_place
from healthd.core.hang.suspects.vote import HangLocation, Suspect


def suspects_of(
    location: HangLocation, ranks: Iterable[RankEvidence], named: Callable[[int], str] = str
) -> tuple[HangSuspect, ...]:
    """
    The suspects for the cause of a recovery. None where there are more than are listed: so many are no suspicion.

    *named*: what the gang calls the member with that rank.
    """
    if location.more_suspects:
        return ()
    stacks = {each.rank: each.stack for each in ranks}
    return tuple(_suspect(each, stacks.get(each.rank), named(each.rank)) for each in location.suspects)


def _suspect(suspect: Suspect, stack: Stack | None, member: str) -> HangSuspect:
    frames = stack.frames if stack is not None else ()
    is_program = all(witness.source is not Source.CONNECTIONS for witness in suspect.witnesses)
    # a rank that lost its network waits where all wait: the same place the next time says nothing of the program
    return HangSuspect(
        member=member,
        node=suspect.node,
        pod=suspect.pod,
        witnesses=suspect.strength,
        confidence=suspect.confidence,
        words=[f"{witness.source}: {witness.words}" for witness in suspect.witnesses],
        doing=spoken_place(stack) if stack is not None else "",
        stack=_digest(frames) if frames and is_program else "",
    )


def _digest(frames: Iterable[Frame]) -> str:
    """Equal for equal functions, and short. Lines differ within a loop."""
    functions = ("\0".join(function_of(frame)) for frame in frames)
    return blake2s("\n".join(functions).encode(errors="surrogatepass"), digest_size=8).hexdigest()
