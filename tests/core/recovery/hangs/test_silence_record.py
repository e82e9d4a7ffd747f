"""The record of a silence on the root of a gang: once when it begins, once when it is over, and never by a guess."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from healthd.core.api.health import MemberState
from healthd.core.config import HangPolicy
from healthd.core.config.gangs import SilenceMode
from healthd.core.hang.silence import Silence, SilentMember
from healthd.core.recovery.gang import GangOptions, GangView, Root, RootOutcome
from healthd.core.recovery.hangs.gang_silence import ObservedSilence, observed_silence
from healthd.core.recovery.hangs.silence_record import (
    MOST_STORED,
    confirmed_silence,
    next_record,
    open_silence,
    what_follows,
)
from healthd.core.recovery.progress import Progress
from tests.builders import a_nodehealth
from tests.core.gangs import a_root
from tests.core.recovery.silences import NOW, a_gang, a_rank, a_report, a_rhythm, ago

RECORD = Silence(since=ago(60), seen_at=ago(45), allowed=12.0, period=2.0, members=(), worked=36000.0)


def recorded(root: Root | None = None, silence: Silence | None = RECORD, **fields: Any) -> GangView:
    """The gang with *silence* on its root."""
    return a_gang(root=replace(root or a_root(), silence=silence), **fields)


def update(view: GangView) -> Silence | None:
    return next_record(view, observed_silence(view, HangPolicy(), NOW), NOW)


def test_a_silence_is_recorded_once() -> None:
    record = update(recorded(silence=None))

    assert record is not None
    assert (record.since, record.ended_at) == (ago(60), None)
    assert update(recorded(silence=record)) is None


def test_a_later_silence_is_recorded_in_place_of_one_that_is_over() -> None:
    over = msgspec.structs.replace(RECORD, since=ago(600), ended_at=ago(500))
    record = update(recorded(silence=over))

    assert record is not None
    assert record.since == ago(60)


def test_a_silence_that_was_over_once_is_not_reported_again() -> None:
    assert update(recorded(silence=msgspec.structs.replace(RECORD, ended_at=ago(20)))) is None


def working(**fields: Any) -> GangView:
    """One rank works again."""
    awake = a_rhythm(1, state=MemberState.WORKING, since=None)
    health = {"node-0": a_report(0, a_rhythm(0)), "node-1": a_report(1, awake)}
    return recorded(**{"health": health, **fields})


@pytest.mark.parametrize(
    ("view", "was_stopped"),
    [
        pytest.param(working(), False, id="a rank works"),
        pytest.param(
            recorded(health={"node-0": a_report(0, a_rhythm(0, since=ago(20)), seen_at=ago(1))}),
            False,
            id="a rank has worked since, and is silent again",
        ),
        pytest.param(recorded(a_root(progress=Progress(step=3, at=ago(10)))), False, id="a new step appeared"),
        pytest.param(recorded(a_root(suspended=True)), True, id="it was suspended"),
        pytest.param(recorded(a_root(started_at=ago(5))), True, id="it was started again"),
        pytest.param(recorded(a_root(ending=RootOutcome.COMPLETE)), True, id="it has ended"),
        pytest.param(
            recorded(pods=(a_rank(0), a_rank(1, creation_timestamp=ago(5)))), True, id="a member was created anew"
        ),
    ],
)
def test_what_shows_work_ends_it(view: GangView, was_stopped: bool) -> None:
    record = update(view)

    assert record is not None
    assert (record.since, record.ended_at, record.was_stopped) == (RECORD.since, NOW, was_stopped)


@pytest.mark.parametrize(
    "view",
    [
        pytest.param(recorded(health={}), id="no agent reports"),
        pytest.param(recorded(health={"node-1": a_nodehealth("node-1")}), id="the agents were restarted"),
        pytest.param(
            recorded(health={"node-1": a_report(1, a_rhythm(1, state=MemberState.UNKNOWN))}), id="a rank is unknown"
        ),
        pytest.param(
            working(
                health={"node-1": a_report(1, a_rhythm(1, state=MemberState.WORKING, since=None), seen_at=ago(70))}
            ),
            id="a report that a rank works is older than the silence",
        ),
        pytest.param(recorded(a_root(invalid=("it cannot be read",)), silence=None), id="the root cannot be read"),
        pytest.param(recorded(pods=(a_rank(0),)), id="a member is missing"),
    ],
)
def test_what_is_not_known_ends_nothing_and_begins_nothing(view: GangView) -> None:
    assert update(view) is None


def test_a_record_of_a_time_to_come_counts_as_none() -> None:
    view = recorded(silence=msgspec.structs.replace(RECORD, since=NOW + timedelta(days=9)))
    record = update(view)

    assert record is not None
    assert record.since == ago(60)
    assert open_silence(view.root or a_root(), NOW) is None


def test_the_record_of_a_large_gang_fits_into_an_annotation() -> None:
    members = tuple(SilentMember(rank=str(n), state=MemberState.SILENT, last_active=ago(60)) for n in range(20_000))
    spinning = msgspec.structs.replace(members[777], state=MemberState.WAITING)
    large = msgspec.structs.replace(RECORD, members=(*members[:777], spinning, *members[778:]))
    record = next_record(recorded(silence=None), ObservedSilence(large), NOW)

    assert record is not None
    assert record.members[0] == spinning
    assert len(record.members) == MOST_STORED
    assert len(msgspec.json.encode(record)) < 8192


def test_only_a_record_that_agents_confirm_is_believed() -> None:
    assert confirmed_silence(recorded(), NOW) == RECORD
    assert confirmed_silence(recorded(health={}), NOW) is None
    assert confirmed_silence(recorded(silence=msgspec.structs.replace(RECORD, since=ago(80))), NOW) is None
    assert confirmed_silence(recorded(a_root(suspended=True)), NOW) is None
    assert confirmed_silence(GangView(root=None), NOW) is None


RHYTHM = Progress(step=9, at=ago(90), intervals=[60.0] * 3)
RESTARTED = GangOptions(restart=True, hang=SilenceMode.RESTART)


@pytest.mark.parametrize(
    ("root", "doubt", "text"),
    [
        (a_root(), "", "healthd does nothing about it (hang.silence is tell)"),
        (
            a_root(progress=RHYTHM),
            "",
            "healthd does nothing about it (hang.silence is tell), but for a restart after 1800 s without a new step",
        ),
        (
            a_root(options=GangOptions(hang=SilenceMode.TELL)),
            "",
            "healthd does nothing about it (healthd.dev/hang is tell)",
        ),
        (
            a_root(options=RESTARTED),
            "",
            "it is not restarted for that: its usual pauses are known once 4 of its saves have been seen",
        ),
        (
            a_root(options=RESTARTED, progress=RHYTHM),
            "",
            "it is restarted when that has lasted for 1800 s (hang.floor)",
        ),
        (a_root(options=RESTARTED, progress=RHYTHM), "it is old", "it is not restarted yet: it is old"),
    ],
)
def test_what_follows_is_said(root: Root, doubt: str, text: str) -> None:
    policy = HangPolicy(floor=timedelta(minutes=30))

    assert what_follows(root, policy, RECORD, doubt) == text


SEEN, SINCE = "its ranks worked for", "since their rhythm is known"


@pytest.mark.parametrize(
    ("worked", "why"),
    [
        (90.0, f"{SEEN} 90 s {SINCE}, less than 600 s (hang.floor)"),
        (
            7199.0,
            f"{SEEN} 7199 s {SINCE}, less than 7200 s (12 times hang.floor), unless two witnesses name a rank",
        ),
        (0.0, "no work before it counts: it began with one of the first saves, or soon after a start or a long pause"),
        (None, "an agent does not say for how long its ranks worked before; is it older?"),
    ],
)
def test_it_is_said_why_a_gang_that_was_not_seen_to_work_for_long_is_not_restarted(
    worked: float | None, why: str
) -> None:
    silence = msgspec.structs.replace(RECORD, worked=worked)

    follows = what_follows(a_root(options=RESTARTED, progress=RHYTHM), HangPolicy(), silence)
    assert follows == f"it is not restarted for that: {why}; without a new step it is restarted after 600 s"


def test_a_gang_of_which_a_rank_is_stopped_is_restarted_at_once() -> None:
    stopped = SilentMember(rank="1", state=MemberState.SILENT, last_active=ago(60), states="ST")
    waits = SilentMember(rank="0", state=MemberState.SILENT, last_active=ago(60))
    silence = msgspec.structs.replace(RECORD, members=(stopped, waits))

    assert what_follows(a_root(options=RESTARTED, progress=RHYTHM), HangPolicy(), silence) == "it is restarted"


def test_where_it_is_stopped_in_a_start_the_restart_waits_for_it_may_be_a_helper_that_is_not_needed_yet() -> None:
    stopped = SilentMember(rank="1", state=MemberState.SILENT, last_active=ago(60), states="ST")
    waits = SilentMember(rank="0", state=MemberState.SILENT, last_active=ago(60))
    silence = msgspec.structs.replace(RECORD, members=(stopped, waits), is_start=True, worked=0.0)

    assert what_follows(a_root(options=RESTARTED, progress=RHYTHM), HangPolicy(), silence) == (
        "it is restarted when that has lasted for 600 s (hang.floor)"
    )
