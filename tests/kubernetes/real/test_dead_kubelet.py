"""
A kubelet dies and its containers run on, the hardest case: nothing is started again without a proof that they ended.

Everything that a cluster says looks as if the machine were dead. It is not, and its rank still writes.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from healthd.local.demo.script import Script
from tests.kubernetes.real.scenario import RANKS, RealStage
from tests.lab.api import Json
from tests.lab.control_plane import Options
from tests.lab.real.node import RealNode

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.xdist_group("dead kubelet")]

BUSY = Script(ranks=RANKS, steps=100_000, every=10, pace=0.1)
"""A gang that saves every other second: everybody sees that it makes progress."""
STUCK = Script(ranks=RANKS, steps=1000, every=1, pace=3600)
"""One step, and then nothing that could be seen."""
PULSES = 1.0
"""Seconds of further life that show that a rank lives: many pulses."""


@pytest.fixture(scope="module")
def control_plane_options() -> Options:
    """A node that is silent for twenty seconds is given up; less, and a busy machine would have nodes that are not."""
    return Options(node_grace_seconds=20)


@pytest.fixture
def bad(real_stage: RealStage) -> Iterator[RealNode]:
    """A node that is silent for a while. Its power is cut afterwards, so nothing on it outlives the scenario."""
    node = real_stage.real_node(real_stage.installation.names[0])
    yield node
    node.reboot()
    node.wait_until_ready()


def test_gang_that_makes_progress_is_left_alone(real_stage: RealStage, bad: RealNode) -> None:
    real_stage.play(BUSY)
    bad.kill_kubelet()
    real_stage.until("the node given up", lambda: real_stage.readiness(bad.name) == "Unknown")
    seen = real_stage.newest_step
    real_stage.until("ten checkpoints more", lambda: real_stage.newest_step >= seen + 10 * BUSY.every)

    assert real_stage.recoveries() == []
    assert {life.attempt for life in real_stage.lives()} == {0}


def test_gang_goes_on_when_the_agent_has_seen_the_last_process_end(real_stage: RealStage, bad: RealNode) -> None:
    real_stage.play(STUCK)
    rank = real_stage.pod_on(bad.name)
    bad.kill_kubelet()
    held = hold_without_proof(real_stage, rank)

    kill(bad, rank)
    recovery = real_stage.until_phase("Recovered")

    assert proof_of(recovery, rank) == f"the agent on {bad.name} saw its last process end"
    assert recovery["metadata"]["uid"] == held["metadata"]["uid"]
    assert real_stage.nodes_of(1) == set(real_stage.installation.names) - {bad.name}
    assert real_stage.overlaps == []


def test_gang_goes_on_when_the_machine_has_booted(real_stage: RealStage, bad: RealNode) -> None:
    real_stage.play(STUCK)
    rank = real_stage.pod_on(bad.name)
    bad.kill_kubelet()
    held = hold_without_proof(real_stage, rank)

    bad.reboot()
    recovery = real_stage.until_phase("Recovered")

    # Whichever comes first: the node tells of another boot, or its new kubelet of containers that it cannot find.
    assert re.search(f"boot|kubelet of {bad.name}", proof_of(recovery, rank))
    assert recovery["metadata"]["uid"] == held["metadata"]["uid"]
    assert {life.attempt for life in real_stage.lives()} == {0, 1}
    assert real_stage.overlaps == []


def test_gang_goes_on_when_a_node_that_was_cut_off_reports_again(real_stage: RealStage, bad: RealNode) -> None:
    real_stage.play(STUCK)
    rank = real_stage.pod_on(bad.name)
    bad.cut_network()
    held = hold_without_proof(real_stage, rank)

    bad.mend_network()
    recovery = real_stage.until_phase("Recovered")

    assert proof_of(recovery, rank)
    assert recovery["metadata"]["uid"] == held["metadata"]["uid"]
    assert {life.attempt for life in real_stage.lives()} == {0, 1}
    assert real_stage.overlaps == []


def hold_without_proof(real_stage: RealStage, rank: Json) -> Json:
    """The recovery, held for the sake of *rank* alone, which still lives; and its owner was informed."""
    name, node = rank["metadata"]["name"], rank["spec"]["nodeName"]
    held = real_stage.until_phase("Held")
    moment = last_of(real_stage, node)
    real_stage.until("the rank still writing", lambda: last_of(real_stage, node) > moment + PULSES)

    message = f"no proof that {name} on {node} can no longer write"
    assert (held["status"]["heldIn"], held["status"]["message"]) == ("Fencing", message)
    assert set(real_stage.ranks_of(1)) == set()
    real_stage.until("its owner informed", reported(real_stage, message))
    return held


def last_of(real_stage: RealStage, node: str) -> float:
    """The last sign of life of the rank of attempt 0 that was on *node*."""
    return max(life.last for life in real_stage.lives() if life.attempt == 0 and life.node == node)


def reported(real_stage: RealStage, message: str) -> Callable[[], bool]:
    """Whether `kubectl describe job` shows it."""
    return lambda: any(
        each["type"] == "Warning" and each["involvedObject"]["kind"] == "Job" and message in each["message"]
        for each in real_stage.events()
    )


def kill(node: RealNode, rank: Json) -> None:
    """The processes of a pod end, as they would when they crash; its kubelet is dead and hears nothing of it."""
    for pid in node.processes(rank["metadata"]["uid"]):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def proof_of(recovery: Json, rank: Json) -> str:
    """How healthd knew that a pod had ended."""
    return next(str(pod["proof"]) for pod in recovery["status"]["pods"] if pod["uid"] == rank["metadata"]["uid"])
