"""What a gang that hangs is to the person on call."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import msgspec

from healthd.core.alerts.advice import IN_CLUSTER
from healthd.core.alerts.hangs import hang_problems, hanging
from healthd.core.alerts.problem import Problem
from healthd.core.api.incidents import Severity
from healthd.core.api.model import CauseKind
from healthd.core.config import HangPolicy
from healthd.core.config.gangs import SilenceMode
from healthd.core.hang.silence import Silence
from healthd.core.recovery.gang import GangOptions, GangView
from healthd.core.recovery.hangs.gang_silence import observed_silence
from healthd.core.recovery.hangs.silence_record import next_record
from tests.core.gangs import a_root
from tests.core.recovery.silences import NOW, a_gang, ago


def a_hang(hang: SilenceMode | None = None) -> GangView:
    """A gang that hangs, with the record of it."""
    view = a_gang(root=a_root(options=GangOptions(restart=True, hang=hang)))
    record = next_record(view, observed_silence(view, HangPolicy(), NOW), NOW)
    return with_record(view, record)


def with_record(view: GangView, record: Silence | None) -> GangView:
    assert view.root is not None
    return msgspec.structs.replace(view, root=replace(view.root, silence=record))


def problems(view: GangView, later: timedelta = timedelta(0)) -> list[Problem]:
    """What is wrong, *later*."""
    assert view.root is not None
    policy, now = HangPolicy(), NOW + later
    return list(hang_problems(hanging([view.root], policy, now), lambda _: view, policy, IN_CLUSTER, now))


def test_a_gang_that_hangs_is_a_notice_first() -> None:
    (found,) = problems(a_hang())

    assert (found.severity, found.cause, found.since) == (Severity.NOTICE, CauseKind.HANG.value, ago(60))
    assert found.title == "job/train in default hangs: no rank has worked since 2026-01-01 00:59:00 UTC"
    assert found.happened == "Ranks 0, 1 sleep. No rank is named: nothing is known of any rank."
    assert found.did == "healthd does nothing about it (hang.silence is tell)."
    assert found.todo
    assert found.command == "healthd explain job/train -n default"
    assert (found.namespace, found.gang) == ("default", "job/train")


def test_the_person_on_call_reads_who_holds_up_the_others() -> None:
    view = a_hang()
    assert view.root is not None
    assert view.root.silence is not None
    record = msgspec.structs.replace(view.root.silence, located="rank 1 on node-1 holds up the others")
    (found,) = problems(with_record(view, record))

    assert found.happened == "Ranks 0, 1 sleep. Rank 1 on node-1 holds up the others."


def test_a_gang_that_hangs_for_long_is_a_page_under_the_same_key() -> None:
    (first,), (later,) = problems(a_hang()), problems(a_hang(), timedelta(minutes=10))

    assert later.severity is Severity.PAGE
    assert later.key == first.key


def test_what_its_owner_wrote_is_no_alert() -> None:
    view = a_hang()
    assert view.root is not None
    assert view.root.silence is not None

    assert problems(msgspec.structs.replace(view, health={})) == []
    assert problems(with_record(view, msgspec.structs.replace(view.root.silence, since=ago(3000)))) == []


def test_a_hang_that_is_over_or_to_be_ignored_is_no_alert() -> None:
    view = a_hang()
    assert view.root is not None
    assert view.root.silence is not None

    assert problems(with_record(view, msgspec.structs.replace(view.root.silence, ended_at=NOW))) == []
    assert problems(with_record(view, None)) == []
    assert problems(a_hang(hang=SilenceMode.IGNORE)) == []
