"""What `healthd explain` says of the last time that all members of a gang fell silent."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from healthd.core.api.recoveries import MOST_SUSPECTS, HangSuspect
from healthd.core.hang.describe import SURE, describe
from healthd.core.hang.silence import Silence
from healthd.core.recovery.gang import Root
from healthd.core.recovery.hangs.silence_record import members_of
from healthd.core.report.explain import milliseconds
from healthd.core.report.explain_text import duration


def silence_lines(root: Root, now: datetime) -> list[str]:
    """When it began, what each member did, and whether it is over. Empty: it never happened, as far as is known."""
    silence = root.silence
    if silence is None:
        return []
    since = f"{silence.since:%Y-%m-%d %H:%M:%S} UTC"
    what = f"no rank worked; the gang's own rhythm allows {silence.allowed:.0f} s of that"
    if silence.is_start:
        what = "no rank did anything, before the rhythm of every rank was known"
    lines = [
        f"from {since} on {what}",
        describe(silence, members_of(silence, root)),
        *_located(silence),
    ]
    if silence.ended_at is not None:
        how = "the ranks were stopped" if silence.was_stopped else "a rank worked again"
        return [*lines, f"{how} after {duration(milliseconds(silence.ended_at - silence.since))}"]
    if root.started_at is not None and root.started_at > silence.since:
        return [*lines, "the gang was started again since"]
    return [*lines, f"it still hangs, as far as is known: for {duration(milliseconds(now - silence.since))}"]


def _located(silence: Silence) -> Iterator[str]:
    """Who holds up the others, and what each witness says. Empty where that is kept with the run."""
    if silence.located:
        yield from map(_suspected, silence.suspects[:MOST_SUSPECTS]) if silence.suspects else [silence.located]


def _suspected(suspect: HangSuspect) -> str:
    where = ", ".join(f"{kind} {name}" for kind, name in (("pod", suspect.pod), ("node", suspect.node)) if name)
    sure = f"{min(suspect.confidence, SURE):.0%} sure"
    return f"rank {suspect.member} ({where}) holds up the others ({sure}): {'; '.join(suspect.words)}"
