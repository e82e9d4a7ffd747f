"""What a fault would cost a gang now, and what it has cost: the same numbers for everybody who tells them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from healthd.core.api import FencedPod, Recovery, TimelineEntry
from healthd.core.api.model import Phase
from healthd.core.api.save_stats import Save, Saves
from healthd.core.checkpoint.precheck import lost_work, take_silence
from healthd.core.checkpoint.restart_cost import Stake, at_stake, cost_lines, lost_before, restarts
from healthd.core.recovery.gang import Root
from healthd.core.recovery.progress import Progress
from tests.builders import a_cause
from tests.core.gangs import a_recovery_in, a_root
from tests.fakes import START


def after(**fields: float) -> datetime:
    return START + timedelta(**fields)


GOOD = Saves(good=[Save(step=n, at=after(minutes=10 * n)) for n in range(1, 5)])
NOW = after(minutes=52, seconds=10)


def a_gang(known: Saves = GOOD, **fields: Any) -> Root:
    return a_root(saves=known, **fields)


def staked(root: Root, *recoveries: Recovery) -> Stake:
    found = at_stake(root, NOW, recoveries)
    assert found is not None
    return found


def recovered(name: str = "train", *, minutes: float) -> Recovery:
    began = TimelineEntry(phase=Phase.DETECTED, at=START)
    over = TimelineEntry(phase=Phase.RECOVERED, at=after(minutes=minutes))
    recovery = a_recovery_in(Phase.RECOVERED, timeline=[began, over], ended_at=over.at)
    return recovery if name == "train" else _of(recovery, name)


def _of(recovery: Recovery, name: str) -> Recovery:
    gang = msgspec.structs.replace(recovery.spec.gang, name=name, uid=f"uid-{name}")
    return msgspec.structs.replace(recovery, spec=msgspec.structs.replace(recovery.spec, gang=gang))


def test_the_cost_of_a_fault_is_in_plain_words() -> None:
    (cost,) = cost_lines(staked(a_gang()))

    assert cost == (
        "a fault now would cost 12m of work: the newest good checkpoint is step 4 of 2026-01-01 00:40 UTC; "
        "a new one is seen every 10m"
    )


SEEN_SINCE = Progress(step=9, at=after(minutes=51))


def test_a_step_that_was_seen_after_the_last_check_counts_and_is_said_to_be_unchecked() -> None:
    stake = staked(a_gang(progress=SEEN_SINCE))

    (cost,) = cost_lines(stake)
    assert (stake.newest_step, stake.lost_ms) == (9, 70_000)
    assert cost.startswith(
        "a fault now would cost 1m10s of work: the newest checkpoint, step 9 of 2026-01-01 00:51 UTC, has not been "
        "checked yet; the newest good one at the last check was step 4 of 2026-01-01 00:40 UTC; "
    )


def test_before_the_first_good_checkpoint_a_step_that_was_seen_counts() -> None:
    (cost,) = cost_lines(staked(a_gang(Saves(watched_since=START), progress=SEEN_SINCE)))

    assert "step 9 of 2026-01-01 00:51 UTC, has not been checked yet; none was good so far" in cost


@pytest.mark.parametrize(
    ("saves", "progress"),
    [
        (Saves(good=GOOD.good, refused="/c/step_9", why_refused="torn"), SEEN_SINCE),
        (GOOD, Progress(step=9, at=after(minutes=39))),
        (GOOD, Progress(step=3, at=after(minutes=51))),
    ],
    ids=["one was refused at the last check", "it was gone at the last check", "an older one"],
)
def test_a_step_that_was_seen_does_not_count_where_the_last_check_speaks_against_it(
    saves: Saves, progress: Progress
) -> None:
    stake = staked(a_gang(saves, progress=progress))

    assert (stake.newest_step, stake.is_unchecked) == (4, False)


def test_it_is_the_number_of_the_metrics() -> None:
    lost = lost_work(a_gang(), NOW)

    assert lost is not None
    assert staked(a_gang()).lost_ms == lost / timedelta(milliseconds=1)


def test_a_gang_that_does_not_run_has_nothing_at_stake() -> None:
    assert at_stake(a_gang(suspended=True), NOW) is None


def test_one_that_would_be_refused_is_reported_beside_the_cost() -> None:
    torn = Saves(good=GOOD.good, refused="/c/step_5", why_refused="torn")

    assert list(cost_lines(staked(a_gang(torn))))[1:] == ["/c/step_5 would be refused: torn"]


def test_a_gang_that_was_set_going_after_its_newest_checkpoint_says_so() -> None:
    stake = staked(a_gang(started_at=after(minutes=50)))

    (cost,) = cost_lines(stake)
    assert (stake.lost_ms, stake.began_at) == (130_000, after(minutes=50))
    assert "would cost 2m of work" in cost
    assert "; it was set going after that, at 00:50:00; " in cost


def test_that_nothing_would_be_resumed_from_is_reported() -> None:
    torn = Saves(good=GOOD.good, refused="/c/step_5", why_refused="torn", none_loads=True)

    cost, held, refused = cost_lines(staked(a_gang(torn)))

    assert "the newest good checkpoint was step 4" in cost
    assert held.startswith("a fault now would hold the gang")
    assert refused == "/c/step_5 would be refused: torn"


def test_that_the_store_does_not_answer_is_reported() -> None:
    silent = take_silence(a_gang(), "no answer for 120 s", NOW)

    cost, unread = cost_lines(staked(a_gang(silent)))

    assert "the newest good checkpoint is step 4" in cost
    assert unread == "whether anything would be resumed from is not known now: no answer for 120 s"


def test_the_restarts_of_the_gang_itself_report_best_how_long_one_takes() -> None:
    own = a_gang().ref
    others = [recovered("other", minutes=30), recovered("third", minutes=50)]

    assert restarts(own, []) == []
    assert restarts(own, others) == [30 * 60_000, 50 * 60_000]
    assert len(restarts(own, [*others, recovered(minutes=3)])) == 1


def test_how_long_a_restart_takes_is_reported() -> None:
    (once,) = cost_lines(staked(a_gang(), recovered("other", minutes=3)))
    (often,) = cost_lines(staked(a_gang(), *(recovered("other", minutes=minutes) for minutes in (2, 4, 90))))

    assert once.endswith("; the last restart took 3m")
    assert often.endswith("; a restart took 4m (the middle of 3)")


def test_a_recovery_that_did_not_bring_the_gang_back_is_no_measure() -> None:
    assert restarts(a_gang().ref, [a_recovery_in(Phase.GAVE_UP), a_recovery_in(Phase.STARTING)]) == []


# What a fault has cost ------------------------------------------------------------------------------------------------


def faulty(*pods: FencedPod) -> Recovery:
    return a_recovery_in(Phase.STARTING, causes=[a_cause(at=after(minutes=20))], pods=list(pods))


def a_pod_since(since: datetime) -> FencedPod:
    return FencedPod(name="train-0", uid="u", node="node-a", since=since)


def test_the_work_since_the_checkpoint_is_lost() -> None:
    assert lost_before(faulty(), after(minutes=8)) == 12 * 60_000


def test_the_time_in_which_the_gang_did_not_run_is_no_work() -> None:
    assert lost_before(faulty(a_pod_since(after(minutes=19))), after(minutes=8)) == 60_000


def test_pods_that_began_after_the_fault_say_nothing_of_it() -> None:
    assert lost_before(faulty(a_pod_since(after(minutes=21))), after(minutes=8)) == 12 * 60_000


@pytest.mark.parametrize(("saved", "lost"), [(None, None), (after(minutes=21), 0)])
def test_what_is_not_known_or_was_saved_meanwhile_is_not_counted(saved: datetime | None, lost: float | None) -> None:
    assert lost_before(faulty(), saved) == lost
