"""
Put an explanation into words for a person who was woken by it: cause, decision, acts, proof, and what is left to do.

Plain text; whoever prints it may make the titles bold. Text that came from outside (kernel log, paths) is made
harmless for a terminal here.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

from healthd.core.explain import BadNode, Explanation, Why, milliseconds
from healthd.core.model import ENDED, CauseKind, Phase
from healthd.core.objects import ANNOTATION_REPAIRED, Attempt, Recovery


class Section(NamedTuple):
    """A title and the lines below it."""

    title: str
    lines: list[str]


def tell(story: Explanation, *, width: int = 100) -> list[Section]:
    """The whole story, no line longer than *width* unless a single word is."""
    parts = [
        Section(_headline(story), []),
        Section("Cause", [line for why in story.causes for line in _cause(why, width)]),
        Section("Decision", [line for reason in _decision(story) for line in _wrap(reason, width)]),
        Section("Acts", _acts(story, width)),
        Section("Proof", [line for proof in _proof(story) for line in _wrap(proof, width)]),
        Section("Now", [line for left in _now(story) for line in _wrap(left, width)]),
    ]
    return [part for part in parts if part.lines or part is parts[0]]


def row(recovery: Recovery) -> tuple[str, ...]:
    """One line about a recovery, under `COLUMNS`."""
    status = recovery.status
    cause = (status.causes or [recovery.spec.cause])[0]
    began = status.timeline[0].at if status.timeline else None
    ended = status.timeline[-1].at if status.timeline and status.phase in ENDED else None
    return (
        recovery.metadata.name,
        recovery.spec.gang.name,
        status.phase.value,
        cause.kind.value,
        cause.node or "-",
        str(status.checkpoint.step) if status.checkpoint and status.checkpoint.path else "-",
        duration(milliseconds(ended - began)) if ended and began else "-",
        harmless(status.message),
    )


COLUMNS = ("RECOVERY", "GANG", "PHASE", "CAUSE", "NODE", "FROM STEP", "TOOK", "MESSAGE")


def duration(ms: float) -> str:
    """Short and exact enough: `4.2 ms`, `212 ms`, `2.41 s`, `3 min 20 s`."""
    if ms < 10:
        return f"{ms:.1f} ms"
    if ms < 1000:
        return f"{ms:.0f} ms"
    if ms < 60_000:
        return f"{ms / 1000:.2f} s"
    return f"{ms // 60_000:.0f} min {ms % 60_000 / 1000:.0f} s"


def harmless(text: str) -> str:
    """*text* without characters that could do something to a terminal."""
    return "".join(char if char.isprintable() else "\ufffd" for char in text)


def _headline(story: Explanation) -> str:
    state = f"{story.phase} after {duration(story.ms)}" if story.ms is not None else story.phase.value
    if story.held_in:
        state += f" in {story.held_in}"
    when = f", began {story.began:%Y-%m-%d %H:%M:%S} UTC" if story.began else ""
    return f"{story.recovery}: {state} ({story.gang} in {story.namespace}{when})"


def _cause(why: Why, width: int) -> Iterator[str]:
    node = f"{why.node}: " if why.node and why.node not in why.message else ""
    yield from _wrap(f"{why.kind}: {node}{why.message}", width)
    for seen in why.evidence:
        record = f" record {seen.record}" if seen.record >= 0 else ""
        yield from _wrap(f"{_clock(seen.at)}  {seen.source}{record}: {seen.text}", width, indent=4)
    if why.kind is CauseKind.HARDWARE:
        yield from _wrap(f"{_clock(why.at)}  {why.node} was {_taken(why)}", width, indent=4)


def _taken(why: Why) -> str:
    if not why.finding:
        return "found unfit"
    first = why.evidence[0].at if why.evidence else None
    after = f", {duration(milliseconds(why.at - first))} after the kernel's own time stamp" if first else ""
    return f"taken out of service for {why.finding}{after}"


def _decision(story: Explanation) -> Iterator[str]:
    kinds = {why.kind for why in story.causes}
    yield _JUDGED[next(kind for kind in _JUDGED if kind in kinds)]
    for refused in story.rejected:
        yield f"refused step {refused.step}, {refused.path}: {refused.reason}"
    if story.checkpoint is not None:
        yield _chosen(story)
    if story.no_advance:
        yield f"{story.no_advance} restarts in a row brought no new step" + _waited(story)
    yield from (f"{spare} in place of {bad}; every other member stays" for bad, spare in story.replacements.items())
    if story.attempts and not story.replacements:
        yield "no spare was needed: every member stays on its node"


_JUDGED = {
    CauseKind.HARDWARE: "the node is to blame: stop the whole gang now, and go on without that node",
    CauseKind.INTERRUPTED: "the supervisor of the ranks went away, no node is to blame: start the gang again",
    CauseKind.SOFTWARE: "every node is healthy: a fault of the software, so start again on the same nodes",
    CauseKind.HANG: "everything is alive and nothing moves: stop the gang and start it again",
}
"""The most telling kind first."""


def _chosen(story: Explanation) -> str:
    checkpoint = story.checkpoint
    if checkpoint is None or not checkpoint.path:
        return "a fresh start: nothing was ever saved"
    lost = f"; at least {_steps(story.lost_steps)} to do again" if story.lost_steps else ""
    return f"resume from step {checkpoint.step}, {checkpoint.path} ({checkpoint.format}, verified){lost}"


def _waited(story: Explanation) -> str:
    return f": the next start waits until {_clock(story.not_before)}" if story.not_before else ""


def _acts(story: Explanation, width: int) -> list[str]:
    lines: list[str] = []
    for lap in story.timeline:
        took = duration(lap.ms) if lap.ms is not None else ""
        head = f"{_clock(lap.at)}  {took:>9}  {lap.phase:<10}  "
        lines += _wrap(f"{head}{lap.message}", width, hanging=len(head))
    for attempt in story.attempts:
        lines += _wrap(_started(attempt), width)
    return lines


def _started(attempt: Attempt) -> str:
    places = ", ".join(f"{index} on {node}" for index, node in attempt.placement.items())
    resume = f"resume from step {attempt.checkpoint.step}" if attempt.checkpoint.path else "start from nothing"
    return f"attempt {attempt.number} was told to {resume}; ranks: {places or 'anywhere'}"


def _proof(story: Explanation) -> Iterator[str]:
    for pod in story.pods:
        yield f"{pod.name}: {pod.proof or 'NOT PROVEN to be gone'}"
    if story.confirmed_step is not None and story.checkpoint is not None:
        yield f"step {story.confirmed_step} was seen and verified, beyond step {story.checkpoint.step} that was loaded"


def _now(story: Explanation) -> Iterator[str]:
    if story.phase is Phase.RECOVERED:
        yield "nothing is left to do for the gang"
    elif story.phase is Phase.HELD:
        yield f"it waits, and goes on by itself when this changes: {story.message}"
    elif story.phase in ENDED:
        yield f"it is over: {story.message}"
    else:
        yield f"it is at work: {story.message}"
    yield from map(_state_of, story.nodes)


def _state_of(bad: BadNode) -> str:
    if bad.quarantined_since is None:
        return f"{bad.node} is not in quarantine"
    stands = f", for {', '.join(bad.findings)}" if bad.findings else ""
    return (
        f"{bad.node} is in quarantine since {_clock(bad.quarantined_since)}{stands}; once it is repaired, say so "
        f"and it is given back: `healthd repair {bad.node}`, or its annotation {ANNOTATION_REPAIRED} set to the time"
    )


def _steps(count: int | None) -> str:
    return f"{count} step" if count == 1 else f"{count} steps"


def _clock(at: datetime | None) -> str:
    return f"{at:%H:%M:%S}.{at.microsecond // 1000:03}" if at else "-"


def _wrap(text: str, width: int, *, indent: int = 2, hanging: int = 2) -> Sequence[str]:
    return textwrap.wrap(
        harmless(text),
        width,
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent + hanging),
        break_long_words=False,
        break_on_hyphens=False,
    )
