"""All ranks of a gang fall silent, as their agents report: it is reported, or restarted, and never by a guess."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import pytest

from healthd.cluster.port import Invalid
from healthd.core.api import NodeHealth, ObjectReference
from healthd.core.api.health import MemberState
from healthd.core.api.model import CauseKind, Phase
from healthd.core.config import HangPolicy
from healthd.core.config.gangs import SilenceMode
from tests.scenarios.scenario import Scenario
from tests.simulation.step_scheduler import at_once

SOON = timedelta(seconds=10)
RESTART = HangPolicy(silence=SilenceMode.RESTART, floor=SOON)
WORKING, SILENT, WAITING = MemberState.WORKING, MemberState.SILENT, MemberState.WAITING


class Silent(Scenario):
    """A gang whose agents report what its ranks do. *reported* are the Events of its root."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.reported: list[tuple[str, str]] = []
        self.activities: dict[str, dict[str, Any]] = {}
        """What quiet pods do, by node, where the agent says it."""
        self.worked: float | None = 36000.0
        """Seconds for which agents had seen every rank work."""
        self.start_controller()

    def start_controller(self) -> None:
        """In place of the controller before it."""
        self.add_loop("controller", self.new_controller("controller", announce=self._announce))

    def _announce(self, about: ObjectReference, kind: str, reason: str, message: str) -> None:
        if about.kind == "Job" and reason.startswith("GangHang"):
            self.reported.append((reason, message))

    def report(self, *states: MemberState, since: timedelta = timedelta(0)) -> None:
        """The agents of all ranks publish these states; ranks that do not work stopped *since* ago."""
        now = self.clock.now()
        for pod, state in zip(sorted(self.pods(), key=lambda pod: pod.metadata.name), states, strict=True):
            rhythm: dict[str, Any] = {"uid": pod.metadata.uid, "state": state.value, "period": 2.0, "allowed": 12.0}
            if activity := self.activities.get(pod.spec.node_name):
                rhythm["activity"] = activity
            if state is not WORKING:
                rhythm |= {"since": (now - since).isoformat(), "worked": self.worked}
            self.publish(pod.spec.node_name, [rhythm])

    def publish(self, node: str, rhythms: Iterable[dict[str, Any]]) -> None:
        """The agent of *node* publishes these rhythms."""
        status = {"rhythms": list(rhythms), "seenAt": self.clock.now().isoformat()}
        at_once(self.ground_truth.patch(NodeHealth, node, {"status": status}, subresource="status"))

    async def hang(self, *states: MemberState) -> None:
        """The program stands still, and the agents say so after 15 seconds."""
        self.trainers.stalled.add("train")
        await self.run_for(seconds=25)
        self.report(*(states or (SILENT, SILENT)), since=timedelta(seconds=15))
        await self.run_for(seconds=20)


async def test_a_hang_is_reported_once_and_not_restarted() -> None:
    scenario = Silent()
    await scenario.run_for(minutes=5)
    await scenario.hang(SILENT, WAITING)
    await scenario.run_for(minutes=3)

    ((reason, why),) = scenario.reported
    assert reason == "GangHangs"
    assert "the gang's own rhythm allows 12 s: rank 0 sleeps; rank 1 uses a processor and does nothing else" in why
    assert "healthd does nothing about it (hang.silence is tell), but for a restart after 600 s" in why
    assert scenario.recoveries() == []
    assert scenario.root.silence is not None


async def test_the_end_of_a_hang_is_reported_once() -> None:
    scenario = Silent()
    await scenario.run_for(minutes=5)
    await scenario.hang()
    scenario.trainers.stalled.clear()
    scenario.report(WORKING, WORKING)
    await scenario.run_for(minutes=3)

    assert [reason for reason, _ in scenario.reported] == ["GangHangs", "GangHangOver"]
    assert scenario.root.silence is not None
    assert scenario.root.silence.ended_at is not None


async def test_another_controller_does_not_tell_it_again() -> None:
    scenario = Silent()
    await scenario.run_for(minutes=5)
    await scenario.hang()
    scenario.start_controller()
    await scenario.run_for(minutes=1)

    assert [reason for reason, _ in scenario.reported] == ["GangHangs"]


async def test_two_controllers_at_once_tell_it_once() -> None:
    scenario = Silent()
    scenario.add_loop("second", scenario.new_controller("second", announce=scenario._announce))
    await scenario.run_for(minutes=5)
    await scenario.hang()

    assert [reason for reason, _ in scenario.reported] == ["GangHangs"]


async def test_agents_that_are_restarted_end_no_hang() -> None:
    scenario = Silent()
    await scenario.run_for(minutes=5)
    await scenario.hang()
    for node in ("node-0", "node-1"):
        scenario.publish(node, [])
    await scenario.run_for(minutes=1)

    assert [reason for reason, _ in scenario.reported] == ["GangHangs"]
    assert scenario.root.silence is not None
    assert scenario.root.silence.ended_at is None


async def test_a_gang_that_hangs_is_restarted_on_request_long_before_its_checkpoints_are_late() -> None:
    scenario = Silent(hang=RESTART)
    await scenario.run_for(minutes=5)
    stalled_at = scenario.clock.now()
    await scenario.hang()
    scenario.trainers.stalled.clear()
    recovery = await scenario.run_until(Phase.RECOVERED)

    assert recovery.spec.cause.kind is CauseKind.HANG
    assert recovery.spec.cause.message.startswith("no rank has worked for")
    assert recovery.spec.cause.at - stalled_at < timedelta(seconds=60)
    assert [reason for reason, _ in scenario.reported] == ["GangHangs", "GangHangOver"]
    assert len(scenario.recoveries()) == 1
    assert scenario.quarantined() == []


async def test_a_silence_that_may_end_by_itself_is_restarted_for_once_it_is_long() -> None:
    scenario = Silent(hang=HangPolicy(silence=SilenceMode.RESTART, factor=100))
    await scenario.run_for(minutes=5)
    await scenario.hang()
    for minute in range(1, 10):
        await scenario.run_for(minutes=1)
        scenario.report(SILENT, SILENT, since=timedelta(minutes=minute, seconds=15))
    assert scenario.recoveries() == []

    await scenario.run_for(minutes=1)
    scenario.report(SILENT, SILENT, since=timedelta(minutes=10, seconds=15))
    scenario.trainers.stalled.clear()
    recovery = await scenario.run_until(Phase.RECOVERED)

    assert recovery.spec.cause.message.startswith("no rank has worked for 6")


@pytest.mark.parametrize(
    ("configured", "annotation", "restarts"),
    [
        (SilenceMode.TELL, "restart", True),
        (SilenceMode.RESTART, "tell", False),
        (SilenceMode.RESTART, "ignore", False),
    ],
)
async def test_the_owner_of_a_gang_chooses_by_an_annotation(
    configured: SilenceMode, annotation: str, restarts: bool
) -> None:
    scenario = Silent(hang=HangPolicy(silence=configured, floor=SOON), options={"healthd.dev/hang": annotation})
    await scenario.run_for(minutes=5)
    await scenario.hang()
    await scenario.run_for(seconds=30)

    assert bool(scenario.recoveries()) is restarts
    assert bool(scenario.reported) is (annotation != "ignore")


async def test_a_gang_that_has_not_saved_a_few_times_is_not_restarted() -> None:
    scenario = Silent(hang=RESTART)
    await scenario.run_for(seconds=50)
    await scenario.hang()
    await scenario.run_for(minutes=1)

    ((_, why),) = scenario.reported
    assert why.endswith("it is not restarted for that: its usual pauses are known once 4 of its saves have been seen")
    assert scenario.recoveries() == []


@pytest.mark.parametrize("states", [(SILENT, WORKING), (WORKING, WORKING)])
async def test_a_gang_with_quiet_members_is_left_alone(states: tuple[MemberState, ...]) -> None:
    """An evaluation or a save by one rank, for which the others wait."""
    scenario = Silent(hang=RESTART)
    await scenario.run_for(minutes=5)
    for _ in range(20):
        scenario.report(*states, since=timedelta(seconds=40))
        await scenario.run_for(seconds=30)

    assert scenario.reported == []
    assert scenario.recoveries() == []


async def test_a_gang_that_saves_is_not_restarted_for_reports_of_agents_that_have_died() -> None:
    scenario = Silent(hang=HangPolicy(silence=SilenceMode.RESTART))
    await scenario.run_for(minutes=5)
    scenario.report(SILENT, SILENT, since=timedelta(seconds=1))
    await scenario.run_for(seconds=60)

    assert scenario.recoveries() == []
    assert scenario.reported == []


POLLS, WAITS_FOR_ITS_DISK = {"cpu": 1.0, "ioWait": 0.0}, {"cpu": 0.002, "ioWait": 0.8}


async def hung_on(node: str, **options: Any) -> Silent:
    """A gang of four in which the rank on *node* waits for its disk, and all others for it."""
    scenario = Silent(ranks=4, spares=1, **options)
    await scenario.run_for(minutes=5)
    scenario.activities = {f"node-{number}": POLLS for number in range(4)} | {node: WAITS_FOR_ITS_DISK}
    await scenario.hang(WAITING, WAITING, SILENT, WAITING)
    return scenario


async def test_the_event_names_the_rank_that_holds_up_the_others() -> None:
    scenario = await hung_on("node-2")

    ((_, why),) = scenario.reported
    assert (
        "; rank 2 on node-2 holds up the others (68% sure): its process is in the kernel and cannot be interrupted, "
        "in io_schedule; healthd does nothing about it"
    ) in why
    assert scenario.root.silence is not None
    (suspect,) = scenario.root.silence.suspects
    assert (suspect.node, suspect.pod.startswith("train"), len(suspect.words)) == ("node-2", True, 2)


async def test_for_one_witness_the_gang_is_restarted_where_it_was_and_the_recovery_keeps_who_was_suspected() -> None:
    scenario = await hung_on("node-2", hang=RESTART)
    scenario.trainers.stalled.clear()
    recovery = await scenario.run_until(Phase.RECOVERED)

    (suspect,) = recovery.spec.cause.suspects
    assert (suspect.member, suspect.node, suspect.witnesses) == ("2", "node-2", 1)
    assert "member 2 is suspected by 1 witness" in recovery.spec.cause.message
    assert scenario.places() == {str(number): f"node-{number}" for number in range(4)}
    assert (scenario.pool(), scenario.quarantined()) == (["node-4"], [])


async def test_a_node_that_is_suspected_again_is_named_so() -> None:
    scenario = await hung_on("node-2", hang=RESTART)
    scenario.trainers.stalled.clear()
    await scenario.run_until(Phase.RECOVERED)
    await scenario.run_for(minutes=5)
    await scenario.hang(WAITING, WAITING, SILENT, WAITING)

    why = scenario.reported[-1][1]
    assert "; suspected before in hangs that led to a restart: node-2 (1 time); `healthd check` it; it is " in why


def a_stack(function: str, file: str, syscall: str) -> dict[str, Any]:
    """What the component `hang-evidence` says of a pod."""
    frames = [{"function": function, "file": file, "line": 7}]
    return {"process": {"state": "sleeping", "name": "python", "pid": 9, "syscall": syscall, "stack": frames}}


REDUCES = a_stack("all_reduce", "torch/distributed/distributed_c10d.py", "futex")
LOADS = a_stack("load_rows", "rows.py", "read")


async def loads_for_ever(node: str) -> Silent:
    """All ranks sleep; the one on *node* in its loader. One spare is free, and healthd restarts what hangs."""
    scenario = Silent(ranks=4, spares=1, hang=RESTART)
    await scenario.run_for(minutes=5)
    scenario.activities = {f"node-{number}": REDUCES for number in range(5)} | {node: LOADS}
    await scenario.hang(SILENT, SILENT, SILENT, SILENT)
    return scenario


async def test_a_node_that_two_witnesses_suspect_is_swapped_for_a_spare_and_stays_in_service() -> None:
    scenario = await loads_for_ever("node-2")
    scenario.trainers.stalled.clear()
    recovery = await scenario.run_until(Phase.RECOVERED)
    await scenario.run_for(minutes=1)

    (suspect,) = recovery.spec.cause.suspects
    assert (suspect.node, suspect.witnesses, suspect.doing) == ("node-2", 2, "load_rows (rows.py:7)")
    assert scenario.places() == {"0": "node-0", "1": "node-1", "2": "node-4", "3": "node-3"}
    assert (scenario.pool(), scenario.quarantined()) == (["node-2"], [])


async def test_a_gang_that_hangs_again_in_the_same_functions_is_not_restarted_a_third_time() -> None:
    scenario = await loads_for_ever("node-2")
    await scenario.run_until(Phase.CONFIRMING)
    await scenario.run_for(seconds=30)
    scenario.activities["node-4"] = LOADS
    scenario.report(SILENT, SILENT, SILENT, SILENT, since=timedelta(seconds=15))
    await scenario.run_for(minutes=30)  # its agents have nothing to add
    status = scenario.recovery().status

    assert status.phase is Phase.HELD
    assert [attempt.number for attempt in status.attempts] == [1]
    assert "it hangs again in the same place" in status.message
    assert "member 2 is in load_rows (rows.py:7)" in status.message


async def test_a_gang_that_was_left_hanging_goes_on_when_its_agents_see_it_work() -> None:
    scenario = await loads_for_ever("node-2")
    await scenario.run_until(Phase.CONFIRMING)
    await scenario.run_for(seconds=30)
    scenario.activities["node-4"] = LOADS
    scenario.report(SILENT, SILENT, SILENT, SILENT, since=timedelta(seconds=15))
    await scenario.run_until(Phase.HELD)
    scenario.trainers.stalled.clear()
    scenario.report(WORKING, WORKING, WORKING, WORKING)
    recovery = await scenario.run_until(Phase.RECOVERED)

    assert [attempt.number for attempt in recovery.status.attempts] == [1]


async def test_a_report_with_impossible_numbers_is_refused_and_names_no_rank() -> None:
    scenario = Silent()
    await scenario.run_for(minutes=5)
    scenario.activities = {"node-0": {"cpu": -1.0}}
    with pytest.raises(Invalid):
        await scenario.hang()
