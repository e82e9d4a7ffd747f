"""For how long the failure of a rank may still turn out to be one of the hardware."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from healthd.core.api import (
    ContainerState,
    ContainerStatus,
    FencedPod,
    Pod,
    PodStatus,
    Terminated,
    TimelineEntry,
)
from healthd.core.api.model import Phase
from healthd.core.config import RecoveryPolicy
from healthd.core.recovery.decide import Decision, decide
from healthd.core.recovery.gang import GangView, WitnessReport
from healthd.core.recovery.resume_point import READ_AGAIN
from tests.builders import a_cause, a_node, a_pod
from tests.core.gangs import SOFTWARE, STOPPED, a_recovery_in, a_root
from tests.fakes import START

POLICY = RecoveryPolicy()
NOW = START + timedelta(minutes=5)
"""When the stop began; a moment later it is decided."""
LATER = timedelta(milliseconds=300)
KILLED = Terminated(exit_code=137, signal=9)
ABORTED = Terminated(exit_code=134, signal=6)
ASKED = Terminated(exit_code=143, signal=15)
NODES = {name: a_node(name) for name in ("node-0", "node-1")}


def a_rank(index: int, end: Terminated, ms: int) -> Pod:
    """A rank that ended so many milliseconds after the stop began."""
    at = NOW + timedelta(milliseconds=ms)
    ended = Terminated(exit_code=end.exit_code, signal=end.signal, reason="Error", finished_at=at)
    status = ContainerStatus(name="main", state=ContainerState(terminated=ended))
    return a_pod(f"r{index}", node=f"node-{index}", uid=f"u{index}", status=PodStatus(container_statuses=[status]))


def decided(*pods: Pod, until: datetime | None = NOW, causes: Any = None, **reported: Any) -> Decision:
    """The next move for a gang whose stop began at NOW, when all that the witnesses saw *until* then is known."""
    recovery = a_recovery_in(
        Phase.CHOOSING,
        causes=causes,
        timeline=[TimelineEntry(phase=Phase.STOPPING, at=NOW)],
        pods=[FencedPod(name=f"r{i}", uid=f"u{i}", node=f"node-{i}", index=str(i), proof="gone") for i in range(2)],
    )
    witness_report = WitnessReport(until=until, **reported)
    view = GangView(root=a_root(**STOPPED), nodes=NODES, pods=pods, witness_report=lambda node: witness_report)
    return decide(recovery, view, [], POLICY, NOW + LATER)


def test_a_rank_that_was_killed_from_outside_is_not_waited_for_once_all_sources_reported() -> None:
    assert decided(a_rank(0, KILLED, -5), a_rank(1, ASKED, 100)) == READ_AGAIN


@pytest.mark.parametrize("end", [Terminated(exit_code=137), Terminated(exit_code=143, signal=15)])
def test_a_shell_that_reports_the_signal_and_other_signals_of_people_count(end: Terminated) -> None:
    assert decided(a_rank(0, end, -5)) == READ_AGAIN


def test_what_fails_after_it_only_lost_its_peer() -> None:
    assert decided(a_rank(0, KILLED, -5), a_rank(1, ABORTED, -4)) == READ_AGAIN


@pytest.mark.parametrize(
    ("pods", "reported"),
    [
        pytest.param([a_rank(0, ABORTED, -5)], {}, id="it aborted"),
        pytest.param([a_rank(0, Terminated(exit_code=139, signal=11), -5)], {}, id="it broke its memory"),
        pytest.param([a_rank(0, Terminated(exit_code=135, signal=7), -5)], {}, id="its memory is broken"),
        pytest.param([a_rank(0, Terminated(exit_code=1), -5)], {}, id="it failed, and who knows why"),
        pytest.param([a_rank(0, ABORTED, -6), a_rank(1, KILLED, -5)], {}, id="another one had aborted before"),
        pytest.param([a_rank(0, KILLED, 5)], {}, id="it hung, and healthd itself killed it"),
        pytest.param([], {}, id="how it ended is not known"),
        pytest.param([a_rank(0, KILLED, -5)], {"until": None}, id="how far the log was read is not known"),
        pytest.param([a_rank(0, KILLED, -5)], {"until": NOW - LATER}, id="the log was read to before its end"),
        pytest.param([a_rank(0, KILLED, -5)], {"until": NOW + 2 * LATER}, id="a clock was set back"),
    ],
)
def test_everything_else_has_the_whole_window_while_the_checkpoint_is_read(pods: list[Pod], reported: Any) -> None:
    decision = decided(*pods, **reported)

    assert decision.waits
    assert decision.reason == "waiting for evidence of broken hardware"
    assert decision.recheck == POLICY.fault_window - LATER


def test_without_a_witness_there_is_nothing_to_wait_for() -> None:
    assert decided(a_rank(0, ABORTED, -5), until=None, no_witness=True) == READ_AGAIN


def test_what_is_known_to_be_hardware_is_not_waited_for() -> None:
    assert decided(until=None, causes=[SOFTWARE, a_cause(node="node-1")]) == READ_AGAIN
