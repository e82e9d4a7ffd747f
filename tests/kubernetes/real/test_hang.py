"""
One rank of a real gang is stopped, so its peer waits for ever and nothing fails: agents and controller see it, and the
component `hang-evidence` which of them is stopped.

Each rank computes all the time, without a rest between steps: beside other tests it still uses a good part of a core.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta

import msgspec
import pytest

from healthd.clock import SystemClock
from healthd.core.api import ANNOTATION_HANG, ANNOTATION_PROGRESS
from healthd.core.recovery.progress import Progress, has_rhythm
from healthd.local.demo.script import Script
from tests.kubernetes.real.rank_rhythms import until_rhythms_known
from tests.kubernetes.real.scenario import GANG, RANKS, RealStage

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.xdist_group("dead kubelet")]

NEVER_SAVES = Script(ranks=RANKS, steps=10**9, every=10**9, pace=0)
SAVES = Script(ranks=RANKS, steps=10**9, every=1000, pace=0.002)
"""More than ten seconds between two saves: most of the time the newest one is known for a while."""
SETTLED = timedelta(seconds=3)
"""A rank that works for so long after a save is seen to: its agent samples it each second."""


@pytest.fixture
def stopped(real_stage: RealStage) -> Iterator[list[int]]:
    """Processes that are stopped in the scenario: they go on afterwards, or they could not be ended in good time."""
    pids: list[int] = []
    yield pids
    signal_all(pids, signal.SIGCONT)


def test_gang_whose_rank_is_stopped_is_reported_until_it_works_again(real_stage: RealStage, stopped: list[int]) -> None:
    real_stage.train(NEVER_SAVES)
    until_rhythms_known(real_stage)

    stop_one_rank(real_stage, stopped)
    real_stage.until("its hang reported", lambda: messages(real_stage, "GangHangs"))
    signal_all(stopped, signal.SIGCONT)
    real_stage.until("the end of its hang reported", lambda: messages(real_stage, "GangHangOver"))

    [hang], [over] = messages(real_stage, "GangHangs"), messages(real_stage, "GangHangOver")
    assert "rank 1 is stopped" in hang
    assert hang.endswith("; healthd does nothing about it (hang.silence is tell)")
    assert re.fullmatch(r"it works again after \d+ s without work", over)
    assert real_stage.recoveries() == []
    assert {life.attempt for life in real_stage.lives()} == {0}


def test_gang_whose_rank_is_stopped_is_restarted_where_its_owner_asked_for_it(
    real_stage: RealStage, stopped: list[int]
) -> None:
    real_stage.hold_free(real_stage.installation.names[-1])
    real_stage.train(SAVES, notes={ANNOTATION_HANG: "restart"})
    until_rhythms_known(real_stage)
    real_stage.until("its saves known, and work since the last one", lambda: has_worked_since_it_saved(real_stage))

    stop_one_rank(real_stage, stopped)
    recovery = real_stage.until_phase("Recovered")

    assert recovery["spec"]["cause"]["kind"] == "hang"
    assert len(messages(real_stage, "GangHangs")) == 1
    assert len(real_stage.recoveries()) == 1
    assert set(real_stage.ranks_of(1)) == {"0", "1"}
    assert real_stage.overlaps == []


def stop_one_rank(real_stage: RealStage, stopped: list[int]) -> None:
    """Stop all processes of one rank, as a debugger that was forgotten does; its kubelet sees nothing of it."""
    life = real_stage.ranks_of(0)["1"]
    pod = real_stage.pod_on(life.node)
    stopped += real_stage.real_node(life.node).processes(pod["metadata"]["uid"])
    signal_all(stopped, signal.SIGSTOP)


def signal_all(pids: list[int], number: signal.Signals) -> None:
    """Send it to those that still live."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def has_worked_since_it_saved(real_stage: RealStage) -> bool:
    """
    Whether the controller knows the newest save and the usual pauses, and the ranks have worked for a while since.

    A save that becomes known after the ranks fell silent would look like a sign of life.
    """
    note = real_stage.job()["metadata"]["annotations"].get(ANNOTATION_PROGRESS, "{}")
    progress = msgspec.json.decode(note, type=Progress)
    if progress.at is None or not has_rhythm(progress) or progress.step != real_stage.newest_step:
        return False
    return SystemClock().now() - progress.at > SETTLED


def messages(real_stage: RealStage, reason: str) -> list[str]:
    """What the Events about the gang say."""
    about = ("Job", GANG)
    found = [e for e in real_stage.events() if (e["involvedObject"]["kind"], e["involvedObject"]["name"]) == about]
    return [each["message"] for each in found if each["reason"] == reason]
