"""
A kubelet dies and its containers run on, the hardest case: nothing is started again without a proof that they ended.

Everything that a cluster says looks as if the machine were dead. It is not, and its rank still writes.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress

import pytest

from healthd.local.demo.script import Script
from tests.kubernetes.real.stage import RANKS, RealStage
from tests.lab.api import Json
from tests.lab.control_plane import Options
from tests.lab.real.node import RealNode

pytestmark = [pytest.mark.lab, pytest.mark.slow]

ENDLESS = Script(ranks=RANKS, steps=100_000, every=10, pace=0.2)
PULSES = 1.0
"""Seconds of further life that show that a rank lives: many pulses."""


@pytest.fixture(scope="module")
def control_plane_options() -> Options:
    """A node that is silent for twenty seconds is given up; less, and a busy machine would have nodes that are not."""
    return Options(node_grace_seconds=20)


def test_gang_goes_on_when_the_agent_has_seen_the_last_process_end(real_stage: RealStage) -> None:
    bad = train_and_kill_a_kubelet(real_stage)
    rank = real_stage.pod_on(bad.name)
    held = hold_without_proof(real_stage, rank)
    assert bad.processes(rank["metadata"]["uid"])

    kill(bad, rank)
    recovery = real_stage.until_phase("Recovered")

    assert proof_of(recovery, rank) == f"the agent on {bad.name} saw its last process end"
    assert recovery["metadata"]["uid"] == held["metadata"]["uid"]
    assert bad.name not in real_stage.nodes_of(1)
    assert real_stage.overlaps == []
    bad.start_kubelet()
    bad.wait_until_ready()


def test_gang_goes_on_when_the_machine_has_booted(real_stage: RealStage) -> None:
    bad = train_and_kill_a_kubelet(real_stage)
    rank = real_stage.pod_on(bad.name)
    held = hold_without_proof(real_stage, rank)

    bad.reboot()
    bad.wait_until_ready()
    recovery = real_stage.until_phase("Recovered")

    assert "boot" in proof_of(recovery, rank)
    assert recovery["metadata"]["uid"] == held["metadata"]["uid"]
    assert {life.attempt for life in real_stage.lives()} == {0, 1}
    assert real_stage.overlaps == []


def train_and_kill_a_kubelet(real_stage: RealStage) -> RealNode:
    """A gang that has saved, and the node of its rank 1, whose kubelet is dead."""
    real_stage.hold_free(real_stage.installation.names[-1])
    real_stage.train(ENDLESS)
    real_stage.until_running(0)
    real_stage.until_saved(ENDLESS.every)
    bad = real_stage.real_node(real_stage.ranks_of(0)["1"].node)
    bad.kill_kubelet()
    return bad


def hold_without_proof(real_stage: RealStage, rank: Json) -> Json:
    """The recovery, held for the sake of *rank* alone, which still lives; and its owner was told."""
    name, node = rank["metadata"]["name"], rank["spec"]["nodeName"]
    held = real_stage.until_phase("Held")
    moment = max(life.last for life in real_stage.lives())
    real_stage.until("the rank still writing", lambda: real_stage.ranks_of(0)["1"].last > moment + PULSES)

    message = f"no proof that {name} on {node} can no longer write"
    assert (held["status"]["heldIn"], held["status"]["message"]) == ("Fencing", message)
    assert set(real_stage.ranks_of(1)) == set()
    real_stage.until("its owner told", told(real_stage, message))
    return held


def told(real_stage: RealStage, message: str) -> Callable[[], bool]:
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
