"""A straggler in words, for the log, for a notification and for `healthd explain`. Safe for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from healthd.core.hang.straggler import LONGEST_REASON, ShownBy, Straggler
from healthd.core.printable import printable

SURE = 0.99
"""The highest confidence that is shown."""
NOTABLE = 0.03
"""A smaller part of the time is not worth a word beside a greater one."""
NOTABLE_OF_MOST = 0.25
"""The same as a share of the greatest part."""


def sentence_of(straggler: Straggler) -> str:
    """Which rank is slow, by how much, and why."""
    sure = f"{min(straggler.confidence, SURE):.0%} sure"
    where = ", ".join(f"{kind} {name}" for kind, name in _places(straggler) if name)
    rank = f"rank {straggler.rank}{f' ({where})' if where else ''}"
    if straggler.shown_by is ShownBy.CLOCK:
        return printable(
            f"{rank} has a GPU that is {straggler.slower:.0%} slower than those of its peers, which have to wait "
            f"({sure}): {straggler.reason}"
        )
    if straggler.pid:
        return printable(
            f"{rank} is about {straggler.slower:.0%} slower than the other ranks of its pod, and they wait for it "
            f"({sure}): {straggler.reason}"
        )
    if straggler.reason:
        return printable(f"{rank} makes its gang about {straggler.slower:.0%} slower ({sure}): {straggler.reason}")
    return printable(
        f"rank {straggler.rank} is about {straggler.slower:.0%} slower than its peers, and they wait for it ({sure}): "
        f"{_late_host(straggler, 'its GPU runs') if straggler.idle else _reason(straggler)}"
        f"{_from_start(straggler) if straggler.from_start else ''}"
    )


def pod_reason(straggler: Straggler, findings: Sequence[str]) -> str:
    """
    Why a pod is slow, by its control group or its GPU, and the *findings* of its node. What its processes do is not
    known.
    """
    starved, stalled = straggler.starved - straggler.peers_starved, straggler.stalled - straggler.peers_stalled
    ran = straggler.ran - straggler.peers_ran
    if straggler.idle:
        why = _late_host(straggler, f"the GPU {straggler.gpu} runs" if straggler.gpu else "its GPUs run")
    elif straggler.shown_by is ShownBy.CLOCK:
        why = straggler.reason
    else:
        on_disk = (
            f"its processes wait for a disk or a file system {straggler.stalled:.0%} of the time, those of its peers "
            f"{straggler.peers_stalled:.0%}"
        )
        waits = (
            f"its processes are ready to run and get no processor {straggler.starved:.0%} of the time, those of its "
            f"peers {straggler.peers_starved:.0%}: something else uses its cores, or it may use too few"
        )
        works = "it works, and its peers wait: it has more to do on the processor, or its processor is slower"
        why = _notable([(stalled, on_disk), (starved, waits), (ran, works)])
    return _citing(why, findings)


def rank_reason(straggler: Straggler, findings: Sequence[str]) -> str:
    """Why a rank is slow beside the others of its pod, by its main thread, and the *findings* of its node."""
    why = _reason(straggler)
    return _citing(f"{why}{_from_start(straggler)}" if straggler.from_start else why, findings)


def _citing(why: str, findings: Sequence[str]) -> str:
    cited = f"; its node has {'; '.join(findings)}" if findings else ""
    return printable(f"{why}{cited}")[:LONGEST_REASON]


def straggler_lines(stragglers: Sequence[Straggler]) -> list[str]:
    """One line for each, with its times."""
    return [f"{sentence_of(each)}; {_times(each)}" for each in stragglers]


def over_of(straggler: Straggler, ended_at: datetime) -> str:
    """That it is over, and for how long it was slow."""
    how = "was stopped with the others" if straggler.was_stopped else "keeps up with the others again"
    how = "is no longer seen to be slow, for its agent began anew" if straggler.was_lost else how
    how = "was slow until its gang hung" if straggler.hung else how
    of = f"the GPU {straggler.gpu} of " if straggler.gpu else ""
    return printable(f"{of}rank {straggler.rank} {how}, after {minutes(straggler.since, ended_at)}")


def effect_of(straggler: Straggler) -> str:
    """What it does to its gang, in a few words. By the clock of a GPU only the most is known."""
    rank, slower = printable(straggler.rank), f"{straggler.slower:.0%} slower"
    return (
        f"up to {slower}, because of a GPU of rank {rank}"
        if straggler.shown_by is ShownBy.CLOCK
        else f"about {slower}, because of rank {rank}"
    )


def minutes(begin: datetime, end: datetime) -> str:
    """The time between, in words."""
    passed = max(1, round((end - begin).total_seconds() / 60))
    return "1 minute" if passed == 1 else f"{passed:,} minutes"


def _places(straggler: Straggler) -> Sequence[tuple[str, str]]:
    return ("pod", straggler.pod), ("node", straggler.node), ("process", str(straggler.pid or ""))


def _reason(straggler: Straggler) -> str:
    """What makes the difference, the greater part first."""
    starved = (
        f"its main thread is ready to run and gets no processor {straggler.starved:.0%} of the time, "
        f"its peers {straggler.peers_starved:.0%}: something else uses its cores, or it may use too few"
    )
    ran = (
        f"its main thread computes {straggler.ran:.0%} of the time, its peers {straggler.peers_ran:.0%}: "
        "it has more to do on the processor, or its processor is slower"
    )
    own_waits = (
        f"its main thread sleeps, or waits for a file or another process of its own, {straggler.own_waits:.0%} of the "
        f"time, its peers {straggler.peers_own_waits:.0%}: its data may come late"
    )
    stopped = (
        f"its main thread is stopped, or waits for something of its own, {straggler.own_waits:.0%} of the time, its "
        f"peers {straggler.peers_own_waits:.0%}: something stops its process (SIGSTOP) and continues it again and again"
    )
    return _notable(
        [
            (straggler.starved - straggler.peers_starved, starved),
            (straggler.ran - straggler.peers_ran, ran),
            (straggler.own_waits - straggler.peers_own_waits, stopped if _is_often_stopped(straggler) else own_waits),
        ]
    )


def _late_host(straggler: Straggler, runs: str) -> str:
    """Its GPU waits for its host, and those of its peers for its GPU. *runs*: which GPU, as in `its GPU runs`."""
    return (
        f"{runs} no kernel {straggler.idle:.0%} of the time, those of its peers {straggler.peers_idle:.0%}, "
        "which wait for it: its host comes late, as with data that load slowly or other work of its processor"
    )


def _is_often_stopped(straggler: Straggler) -> bool:
    """Whether that is a notable part of its own waits, which a process that computes and is stopped seems to have."""
    return straggler.stopped >= max(NOTABLE, NOTABLE_OF_MOST * (straggler.own_waits - straggler.peers_own_waits))


def _from_start(straggler: Straggler) -> str:
    """What a job gives to a rank is computed: one that gets no processor, or waits, has another trouble."""
    computes = straggler.ran - straggler.peers_ran
    other = straggler.starved - straggler.peers_starved, straggler.own_waits - straggler.peers_own_waits
    because = ", so the job may give it more to do" if computes > max(other) else ""
    return f"; it was so as soon as it could be compared{because}"


def _notable(parts: Sequence[tuple[float, str]]) -> str:
    """Those of the *parts* that make much of a difference, the greatest first."""
    ordered = sorted(parts, key=lambda part: -part[0])
    most = ordered[0][0]
    return "; also, ".join(
        said for part, said in ordered if part >= max(NOTABLE, most * NOTABLE_OF_MOST) or part == most
    )


def _times(straggler: Straggler) -> str:
    since = f"from {straggler.since:%Y-%m-%d %H:%M:%S} UTC on"
    if straggler.ended_at is None:
        return since
    return f"{since}, for {minutes(straggler.since, straggler.ended_at)}; {_end(straggler)}"


def _end(straggler: Straggler) -> str:
    if straggler.hung:
        return "then no rank worked any more, until all were stopped"
    if straggler.was_lost:
        return "then its agent began anew, and did not see it again"
    return "until the ranks were stopped" if straggler.was_stopped else "then it kept up again"
