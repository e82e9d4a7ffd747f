"""
Puts an explanation into words for the person on call: cause, decision, actions, proof, and what is left to do. For a
gang without an incident: what a fault would cost.

Plain text; the caller may print the titles in bold. Text from outside (kernel log, paths) is made safe for a terminal
here.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from healthd.core.api import ANNOTATION_REPAIRED, Attempt, ChosenCheckpoint, Recovery
from healthd.core.api.model import ENDED, CauseKind, Phase
from healthd.core.api.save_stats import NO_SAVES
from healthd.core.checkpoint.precheck import spoken
from healthd.core.checkpoint.restart_cost import Stake, cost_lines
from healthd.core.printable import printable
from healthd.core.recovery.gang import Root, RootOutcome
from healthd.core.recovery.recovery_status import gang_text, running_since
from healthd.core.recovery.root_state import left_stopped
from healthd.core.recovery.terms import KUBERNETES, Terms
from healthd.core.report.explain import BadNode, CauseDetail, Explanation, milliseconds
from healthd.core.shell_words import shell_word
from healthd.core.untrusted import number_or

KEPT_PLACES = 64
"""At most this many ranks of an attempt are listed; `--json` has all of them."""


class Section(NamedTuple):
    """A title and the lines below it."""

    title: str
    lines: list[str]


def explain_sections(
    explanation: Explanation,
    *,
    width: int = 100,
    terms: Terms = KUBERNETES,
    option: str = "",
    is_attended: bool = True,
    way_out: str = "",
    refusal: str = "",
) -> list[Section]:
    """
    The whole text of *explanation*. No line is longer than *width*, except for a single word that is longer. *option*
    is the one by which commands find the run, if it is one. *is_attended*: a healthd runs that goes on with it.
    *way_out*: what a person can do about what it waits for. *refusal*: what was refused last in its present phase.
    """
    now = _now(explanation, terms, option, is_attended, way_out, refusal)
    parts = [
        Section(_headline(explanation, terms), []),
        Section(
            "Cause", [line for number, why in enumerate(explanation.causes) for line in _cause(why, width, number)]
        ),
        Section("Decision", [line for reason in _decision(explanation, terms) for line in wrap(reason, width)]),
        Section("Acts", _acts(explanation, width)),
        Section("Proof", [line for proof in _proof(explanation, terms) for line in wrap(proof, width)]),
        Section("Now", [line for left in now for line in wrap(left, width)]),
        *([next_fault(explanation.at_stake, width, terms)] if explanation.at_stake else []),
    ]
    return [part for part in parts if part.lines or part is parts[0]]


class Sentences(NamedTuple):
    """The same story in sentences, for a message that is read without a terminal."""

    cause: list[str]
    decision: list[str]
    now: list[str]


def sentences(explanation: Explanation, terms: Terms = KUBERNETES) -> Sentences:
    """Cause, decision and what is left of *explanation*. Text from outside is made safe for a terminal."""
    causes = [sentence for number, why in enumerate(explanation.causes) for sentence in _cause_sentences(why, number)]
    return Sentences(
        *(
            [printable(one) for one in part]
            for part in (causes, _decision(explanation, terms), _now(explanation, terms))
        )
    )


def _cause_sentences(why: CauseDetail, number: int) -> Iterator[str]:
    yield _cause_line(why, number)
    yield from (f"{_clock(seen.at)} {seen.source}: {seen.text}" for seen in why.evidence)


def next_fault(stake: Stake, width: int, terms: Terms = KUBERNETES) -> Section:
    """The section with the cost of the next fault."""
    return Section("The next fault", [line for parts in cost_lines(stake, terms) for line in wrap(parts, width)])


def gpu_time(lines: Sequence[str], width: int, terms: Terms = KUBERNETES) -> list[Section]:
    """The section with what the GPUs of a gang, or the slots of a run, were used for; none without *lines*."""
    title = f"{terms.counted[0].upper()}{terms.counted[1:]} time"
    return [Section(title, [line for each in lines for line in wrap(each, width)])] if lines else []


def silent(lines: Sequence[str], width: int) -> list[Section]:
    """The section about members that fell silent; none without *lines*."""
    return [Section("No rank worked", [line for each in lines for line in wrap(each, width)])] if lines else []


def slow(lines: Sequence[str], width: int) -> list[Section]:
    """The section about members that the others waited for; none without *lines*."""
    return [Section("Slow ranks", [line for each in lines for line in wrap(each, width)])] if lines else []


def sections_without_incident(root: Root, stake: Stake | None, *, width: int = 100) -> list[Section]:
    """
    A gang without an incident: a headline, and what a fault would cost. When that is unknown, the text gives the reason
    if the root shows one.
    """
    headline = Section(f"{_gang_in_words(root)}: no recovery so far", [])
    if stake is not None:
        return [headline, next_fault(stake, width, root.terms)]
    return [
        headline,
        Section("The next fault", list(wrap(f"what it would cost is not known: {_why_unknown(root)}", width))),
    ]


def row(recovery: Recovery) -> tuple[str, ...]:
    """One table row for a recovery, under the titles of `columns`."""
    status = recovery.status
    cause = (status.causes or [recovery.spec.cause])[0]
    began = status.timeline[0].at if status.timeline else None
    ended = status.timeline[-1].at if status.timeline and status.phase in ENDED else None
    running = running_since(status)
    return (
        recovery.metadata.name,
        recovery.spec.gang.name,
        status.phase.value,
        cause.kind.value,
        cause.node or "-",
        _from_step(status.checkpoint),
        duration(milliseconds(running - began)) if running and began else "-",
        duration(milliseconds(ended - began)) if ended and began else "-",
        printable(status.message),
    )


def _from_step(checkpoint: ChosenCheckpoint | None) -> str:
    if checkpoint is None or not checkpoint.path:
        return "-"
    return str(checkpoint.step) if checkpoint.step >= 0 else "?"


def columns(terms: Terms = KUBERNETES) -> tuple[str, ...]:
    """The titles of `row`."""
    gang, node = terms.gang.upper(), terms.node.upper()
    return ("RECOVERY", gang, "PHASE", "CAUSE", node, "FROM STEP", "RUNNING", "TOOK", "MESSAGE")


def duration(ms: float) -> str:
    """A duration, short but exact enough: `4.2 ms`, `212 ms`, `2.41 s`, `3 min 20 s`."""
    if ms < 10:
        return f"{ms:.1f} ms"
    if ms < 1000:
        return f"{ms:.0f} ms"
    if ms < 60_000:
        return f"{ms / 1000:.2f} s"
    return f"{ms // 60_000:.0f} min {ms % 60_000 / 1000:.0f} s"


def _headline(explanation: Explanation, terms: Terms) -> str:
    state = (
        f"{explanation.phase} after {duration(explanation.ms)}"
        if explanation.ms is not None
        else explanation.phase.value
    )
    if explanation.held_in:
        state += f" in {explanation.held_in}"
    if explanation.running_ms is not None:
        state += f", all {terms.member}s ran after {duration(explanation.running_ms)}"
    when = f", began {explanation.began:%Y-%m-%d %H:%M:%S} UTC" if explanation.began else ""
    gang = (
        f"{explanation.gang} in {explanation.namespace}"
        if terms is KUBERNETES
        else f"{terms.gang} {explanation.gang.partition(' ')[2]}"
    )
    return f"{explanation.recovery}: {state} ({gang}{when})"


def _cause_line(why: CauseDetail, number: int) -> str:
    joined = "also " if number else ""
    node = f"{why.node}: " if why.node and why.node not in why.message else ""
    return f"{joined}{why.kind}: {node}{why.message}"


def _cause(why: CauseDetail, width: int, number: int) -> Iterator[str]:
    yield from wrap(_cause_line(why, number), width)
    for seen in why.evidence:
        record = f" record {seen.record}" if seen.record >= 0 else ""
        yield from wrap(f"{_clock(seen.at)}  {seen.source}{record}: {seen.text}", width, indent=4)
    if why.kind is CauseKind.HARDWARE or why.node:
        at = why.quarantined_at or why.at
        yield from wrap(f"{_clock(at)}  {why.node} was {_taken(why, at)}", width, indent=4)


def _taken(why: CauseDetail, at: datetime) -> str:
    """Says "out of service" only when that is on record: the budget may have refused it."""
    taken = "taken out of service" if why.quarantined_at else "found unfit"
    reason = f" for {why.finding}" if why.finding else ""
    first = why.evidence[0] if why.evidence else None
    if first is None or first.at > at:
        return taken + reason
    clock = "the kernel's own time stamp" if first.record >= 0 else "the first sign on record"
    return f"{taken}{reason}, {duration(milliseconds(at - first.at))} after {clock}"


def _decision(explanation: Explanation, terms: Terms) -> Iterator[str]:
    yield f"{_blame(explanation, terms)}: {_plan(explanation, terms)}"
    for refused in explanation.rejected:
        step = f"step {refused.step}, " if refused.step >= 0 else ""
        yield f"refused {step}{refused.path}: {refused.reason}"
    if explanation.checkpoint is not None:
        yield _chosen(explanation, explanation.checkpoint)
    elif explanation.lost_ms is not None and explanation.phase not in ENDED:
        yield f"the newest checkpoint that was seen to be good was {_work(explanation.lost_ms)} old when the fault came"
    if explanation.no_advance:
        yield f"{_count(explanation.no_advance, 'restart')} in a row brought no new step{_waited(explanation)}"
    yield from (
        f"{spare} in place of {bad}; every other {terms.node} is kept"
        for bad, spare in explanation.replacements.items()
    )
    yield from (
        f"{spare} in place of {node}, taken while the {terms.gang} was stopped"
        for node, spare in explanation.stand_ins.items()
    )
    if explanation.attempts and not explanation.replacements:
        plans = [lap.message for lap in explanation.timeline if lap.phase is Phase.STARTING and lap.message]
        yield plans[-1] if plans else f"every {terms.member} stays on its {terms.node}"


def _blame(explanation: Explanation, terms: Terms) -> str:
    kinds = {why.kind for why in explanation.causes}
    kind = next(kind for kind in _BLAME if kind in kinds)
    bad = _bad_nodes(explanation)
    if len(bad) > 1:
        return f"the {terms.node}s {_all(bad)} are to blame"
    return (_BLAME[CauseKind.HARDWARE] if bad else _BLAME[kind]).format(node=terms.node)


_BLAME = {
    CauseKind.HARDWARE: "the {node} is to blame",
    CauseKind.INTERRUPTED: "the ranks were ended from outside, no {node} is to blame",
    CauseKind.SOFTWARE: "a fault of the software, no {node} is to blame",
    CauseKind.HANG: "everything is alive and nothing moves",
    CauseKind.MAINTENANCE: "no fault: it leaves {node}s before their maintenance",
    CauseKind.STRAGGLER: "no fault: it leaves a {node} on which a rank makes it slow",
    CauseKind.CAPACITY: "no fault: there are {node}s again for members that were left out",
}
"""The most significant kind first."""


def _plan(explanation: Explanation, terms: Terms) -> str:
    """The plan that follows from the blame, as far as it is on record."""
    if explanation.stopped_attempt is None:
        has = "has not stopped" if explanation.phase not in ENDED else "did not stop"
        return f"healthd {has} the {terms.gang}"
    if explanation.phase is Phase.GAVE_UP:
        return f"the whole {terms.gang} was to stop, and healthd gave up starting it again"
    bad = _bad_nodes(explanation)
    if bad:
        return f"stop the whole {terms.gang}, and go on without {f'that {terms.node}' if len(bad) == 1 else 'them'}"
    but = f", but for {_all(list(explanation.replacements))}" if explanation.replacements else ""
    return f"stop the whole {terms.gang}, and start it again on the same {terms.node}s{but}"


def _bad_nodes(explanation: Explanation) -> list[str]:
    named = (why.node for why in explanation.causes if why.node or why.kind is CauseKind.HARDWARE)
    return list(dict.fromkeys(named))


def _chosen(explanation: Explanation, checkpoint: ChosenCheckpoint) -> str:
    lost = "".join(_lost(explanation))
    if checkpoint.path:
        step = f"step {checkpoint.step}, " if checkpoint.step >= 0 else ""
        return f"resume from {step}{checkpoint.path} ({checkpoint.format}, verified){lost}"
    saved = explanation.rejected or explanation.lost_steps is not None
    return f"a fresh start, although there was something saved{lost}" if saved else _FRESH


def _lost(explanation: Explanation) -> Iterator[str]:
    if explanation.lost_ms is not None:
        yield f"; {_work(explanation.lost_ms)} of work lost"
    if explanation.lost_steps:
        yield f"; at least {_count(explanation.lost_steps, 'step')} to do again"


def _work(ms: float) -> str:
    """A duration of lost work: hours when training saves rarely, milliseconds in a demonstration."""
    return duration(ms) if ms < 120_000 else spoken(timedelta(milliseconds=ms))


_FRESH = "a fresh start: nothing was ever saved"


def _waited(explanation: Explanation) -> str:
    if explanation.not_before is None:
        return ""
    waits = "waits" if Phase.RESERVING in (explanation.phase, explanation.held_in) else "waited"
    return f": the next start {waits} until {_clock(explanation.not_before)}"


def _acts(explanation: Explanation, width: int) -> list[str]:
    lines: list[str] = []
    for lap in explanation.timeline:
        took = duration(lap.ms) if lap.ms is not None else ""
        head = f"{_clock(lap.at)}  {took:>9}  {lap.phase:<10}  "
        lines += wrap(f"{head}{lap.message}", width, hanging=len(head))
    for attempt in explanation.attempts:
        lines += wrap(_started(attempt), width)
    return lines


def _started(attempt: Attempt) -> str:
    resume = f"resume from {_named(attempt.checkpoint)}" if attempt.checkpoint.path else "start from nothing"
    return f"attempt {attempt.number} was to {resume}; {_places(attempt)}"


def _places(attempt: Attempt) -> str:
    """The nodes on which its ranks ran; before these are known, the planned nodes."""
    places = attempt.ran_on or attempt.placement
    parts = [f"{index} on {node}" for index, node in sorted(places.items(), key=_by_number)]
    more = f" and {len(parts) - KEPT_PLACES} more" if len(parts) > KEPT_PLACES else ""
    ranks = "ranks" if attempt.ran_on or not places else "planned ranks"
    return f"{ranks}: {', '.join(parts[:KEPT_PLACES]) or 'where the scheduler put them'}{more}"


def _by_number(place: tuple[str, str]) -> tuple[int, str]:
    return number_or(place[0], -1), place[0]


def _named(checkpoint: ChosenCheckpoint) -> str:
    return f"step {checkpoint.step}" if checkpoint.step >= 0 else checkpoint.path


def _proof(explanation: Explanation, terms: Terms) -> Iterator[str]:
    ends = [f"{terms.named(pod.name, pod.index)}: {pod.proof or 'NOT PROVEN to be gone'}" for pod in explanation.pods]
    yield from dict.fromkeys(ends)
    if explanation.confirmed_step is not None and explanation.checkpoint is not None:
        loaded = explanation.checkpoint
        beyond = f"beyond {_named(loaded)} that was loaded" if loaded.path else "after a fresh start"
        yield f"step {explanation.confirmed_step} was seen and verified, {beyond}"


def _now(
    explanation: Explanation,
    terms: Terms,
    option: str = "",
    is_attended: bool = True,
    way_out: str = "",
    refusal: str = "",
) -> Iterator[str]:
    yield _left(explanation, terms) if is_attended or explanation.phase in ENDED else UNATTENDED
    if refusal and explanation.phase not in ENDED:
        yield f"something was refused, and is tried again: {refusal}"
    if way_out and explanation.phase is Phase.HELD:
        yield f"what to do: {way_out[0].lower()}{way_out[1:]}"
    refused = explanation.held_in is Phase.DETECTED
    yield from (_state_of(bad, terms, option, refused=refused) for bad in explanation.nodes)
    yield from (_silence_of(bad) for bad in explanation.nodes if bad.silent and not bad.gone)


UNATTENDED = (
    "no healthd runs that goes on with it: it was killed in the middle of this. "
    "The same command, given where the run was started, goes on"
)
"""Of a run on one server; a cluster has its controller."""


def _left(explanation: Explanation, terms: Terms) -> str:
    match explanation.phase:
        case Phase.RECOVERED:
            return f"nothing is left to do for the {terms.gang}"
        case Phase.HELD:
            return f"it waits, and goes on by itself when this changes: {explanation.message}"
        case Phase.GAVE_UP:
            return (
                f"healthd gave up: {explanation.message}. It does nothing more for this {terms.gang} by itself: "
                f"mend the cause, then start the {terms.gang} again"
            )
        case Phase.SUPERSEDED:
            return f"nothing is left to do for healthd: {explanation.message}"
        case _:
            return f"it is at work: {explanation.message}"


def _state_of(bad: BadNode, terms: Terms, option: str, *, refused: bool) -> str:
    if bad.quarantined_since is None:
        return _not_quarantined(bad, terms, option, refused=refused)
    stands = f", for {_standing(bad)}" if _standing(bad) else ""
    return (
        f"{bad.node} is in quarantine since {_clock(bad.quarantined_since)}{stands}; once it is repaired, say so "
        f"and it is given back: `{_repair(bad, option)}`{_or_by_hand(terms)}"
    )


def _repair(bad: BadNode, option: str) -> str:
    return " ".join(["healthd repair", shell_word(bad.node, "NODE"), *([option] if option else [])])


def _or_by_hand(terms: Terms) -> str:
    return f", or its annotation {ANNOTATION_REPAIRED} set to the time" if terms is KUBERNETES else ""


def _silence_of(bad: BadNode) -> str:
    since = f"since {bad.agent_seen:%Y-%m-%d %H:%M:%S} UTC" if bad.agent_seen else "yet, or it is an older one"
    return f"the agent on {bad.node} has not reported {since}: its last report may be out of date"


def _not_quarantined(bad: BadNode, terms: Terms, option: str, *, refused: bool) -> str:
    """*refused*: the recovery waits for the quarantine, with or without findings on record."""
    if bad.gone:
        return f"there is no {terms.node} {bad.node} any more"
    if bad.cordoned:
        return f"{bad.node} is cordoned, but not by healthd: healthd does not uncordon it"
    if not bad.findings and not refused:
        return f"{bad.node} is not in quarantine, and nothing that is on record asks for it"
    stands = f" (for {_standing(bad)})" if _standing(bad) else ""
    return (
        f"{bad.node} is not in quarantine: {terms.refusal.replace(', or', ' or')}; "
        f"repair another {terms.node}, or raise quarantine.budget; "
        f"once {bad.node} itself is repaired{stands}: `{_repair(bad, option)}`"
    )


def _standing(bad: BadNode) -> str:
    """Every finding that a repair must fix."""
    lesser = f"lesser: {_all(bad.lesser_findings)}" if bad.lesser_findings else ""
    return "; ".join(part for part in (_all(bad.findings), lesser) if part)


def _all(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _count(number: int | None, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _clock(at: datetime | None) -> str:
    return f"{at:%H:%M:%S}.{at.microsecond // 1000:03}" if at else "-"


def wrap(text: str, width: int, *, indent: int = 2, hanging: int = 2) -> Sequence[str]:
    """The lines of a section, safe for a terminal."""
    return textwrap.wrap(
        printable(text),
        width,
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent + hanging),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _gang_in_words(root: Root) -> str:
    if root.terms is KUBERNETES:
        return f"{gang_text(root.ref)} in {root.ref.namespace}"
    return f"{root.terms.gang} {root.ref.name}"


def _why_unknown(root: Root) -> str:
    options, doctor = root.options, f"`healthd doctor {shell_word(gang_text(root.ref), 'GANG')}`"
    if root.invalid:
        return f"healthd does nothing to this {root.terms.gang}, as it cannot be read: {'; '.join(root.invalid)}"
    if root.ending is not RootOutcome.NOT_ENDED or root.deleting:
        return f"the {root.terms.gang} has ended"
    if why := left_stopped(root, ()):
        return why
    if root.suspended or not root.has_begun:
        return root.unadmitted or f"the {root.terms.gang} does not run"
    if not options.restart or not options.checkpoint:
        return f"healthd was not asked to restart it, or does not know where it saves; {doctor} says what to do"
    if root.saves == NO_SAVES and root.terms is not KUBERNETES:
        return "its checkpoints have not been read since it started; that takes a minute or two"
    if root.saves == NO_SAVES:
        return "its checkpoints have not been read yet, or the controller cannot read them where it is"
    return f"it is not known when it was started; {doctor} may know more"
