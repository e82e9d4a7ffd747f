"""What an explanation says: every number and reason on record, in words that a tired person understands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec
import pytest

from healthd.core.api import (
    ANNOTATION_QUARANTINE,
    Attempt,
    Cause,
    ChosenCheckpoint,
    FencedPod,
    Node,
    NodeHealth,
    Recovery,
    RecoveryStatus,
    RejectedCheckpoint,
    TimelineEntry,
)
from healthd.core.api.model import CauseKind, Evidence, Finding, Phase
from healthd.core.node.quarantine import Record
from healthd.core.report.explain import explain
from healthd.core.report.explain_text import duration, explain_sections, row
from tests.builders import a_cause, a_finding, a_node, a_nodehealth, a_recovery
from tests.fakes import START

TORN = "model-00004-of-00004.safetensors: 1,204 of 4,096 bytes (torn write)"
LINE = "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."


def at(ms: int) -> datetime:
    return START + timedelta(milliseconds=ms)


def timeline(*entries: tuple[Phase, int, str]) -> list[TimelineEntry]:
    return [TimelineEntry(phase=phase, at=at(ms), message=message) for phase, ms, message in entries]


def a_status(phase: Phase, entries: list[TimelineEntry], cause: Cause, **fields: object) -> RecoveryStatus:
    return msgspec.structs.replace(
        RecoveryStatus(phase=phase, timeline=entries, message=entries[-1].message, causes=[cause]), **fields
    )


HARDWARE = a_cause(message="Xid 79 on 0000:3b:00.0", at=at(4), node="node-a", finding="0000:3b:00.0/xid-79")

RECOVERED = a_status(
    Phase.RECOVERED,
    timeline(
        (Phase.DETECTED, 6, "hardware: Xid 79 on 0000:3b:00.0"),
        (Phase.STOPPING, 8, "stop first, diagnose later"),
        (Phase.STARTING, 220, "node-s in place of node-a"),
        (Phase.CONFIRMING, 420, "2 members run"),
        (Phase.RECOVERED, 1506, "training moved on to step 20"),
    ),
    HARDWARE,
    checkpoint=ChosenCheckpoint(path="/ckpt/step-10", step=10, format="safetensors"),
    rejected=[RejectedCheckpoint(path="/ckpt/step-20", step=20, reason=TORN)],
    step_at_fault=20,
    pods=[FencedPod(name="train-0-x", uid="u0", node="node-a", proof="the kubelet of node-a reports it")],
    replacements={"node-a": "node-s"},
    attempts=[Attempt(number=1, checkpoint=ChosenCheckpoint(path="/ckpt/step-10", step=10), placement={"0": "node-s"})],
    confirmed_step=20,
)


def a_story(status: RecoveryStatus = RECOVERED) -> Recovery:
    return a_recovery(cause=status.causes[0], status=status)


def the_world() -> tuple[Mapping[str, Node], Mapping[str, NodeHealth]]:
    """node-a is in quarantine for what the cause says."""
    record = Record(finding=HARDWARE.finding, message=HARDWARE.message, since=HARDWARE.at)
    node = a_node("node-a", annotations={ANNOTATION_QUARANTINE: msgspec.json.encode(record).decode()})
    seen = Evidence(source="kmsg", at=at(0), text=LINE, sequence=1234)
    return {"node-a": node}, {"node-a": a_nodehealth("node-a", findings=[a_finding(evidence=[seen])])}


def words(
    recovery: Recovery, *, width: int = 400, nodes: Sequence[Node] | None = None, findings: Sequence[Finding] = ()
) -> str:
    """The whole text; *nodes* with *findings* on node-a are the world, which is else that of `the_world`."""
    known, health = the_world()
    if nodes is not None:
        known = {node.metadata.name: node for node in nodes}
        health = {"node-a": a_nodehealth("node-a", findings=findings)}
    sections = explain_sections(explain(recovery, known, health), width=width)
    return "\n".join(line for section in sections for line in [section.title, *section.lines])


@pytest.mark.parametrize(
    "fact",
    [
        "train-1: Recovered after 1.50 s, all members ran after 414 ms (Job train in default, began 2026-01-01 ",
        f"00:00:00.000  kmsg record 1234: {LINE}",
        "taken out of service for 0000:3b:00.0/xid-79, 4.0 ms after the kernel's own time stamp",
        "the node is to blame",
        f"refused step 20, /ckpt/step-20: {TORN}",
        "resume from step 10, /ckpt/step-10 (safetensors, verified); at least 10 steps to do again",
        "node-s in place of node-a",
        "00:00:00.008     212 ms  Stopping    stop first, diagnose later",
        "attempt 1 was to resume from step 10; planned ranks: 0 on node-s",
        "train-0-x: the kubelet of node-a reports it",
        "step 20 was seen and verified, beyond step 10 that was loaded",
        "node-a is in quarantine since 00:00:00.004, for 0000:3b:00.0/xid-79; once it is repaired, say so",
        "`healthd repair node-a`, or its annotation healthd.dev/repaired set to the time",
    ],
)
def test_a_recovery_is_explained_with_every_fact_on_record(fact: str) -> None:
    assert fact in words(a_story())


def test_each_phase_has_its_milliseconds() -> None:
    story = explain(a_story(), {}, {})

    assert story.phases == {"Detected": 2.0, "Stopping": 212.0, "Starting": 200.0, "Confirming": 1086.0}
    assert story.ms == 1500.0


def test_a_phase_entered_twice_has_the_sum_of_both() -> None:
    entries = timeline(
        (Phase.STOPPING, 0, ""), (Phase.FENCING, 10, ""), (Phase.STOPPING, 30, ""), (Phase.FENCING, 35, "")
    )

    story = explain(a_story(a_status(Phase.FENCING, entries, HARDWARE)), {}, {})

    assert story.phases == {"Stopping": 15.0, "Fencing": 20.0}


def test_a_recovery_that_is_not_over_has_no_end() -> None:
    story = explain(a_story(a_status(Phase.STOPPING, timeline((Phase.STOPPING, 0, "stop")), HARDWARE)), {}, {})

    assert (story.ended, story.ms, story.timeline[-1].ms) == (None, None, None)


def test_a_recovery_that_has_not_begun_is_explained_by_its_cause() -> None:
    assert "Xid 79 on 0000:3b:00.0" in words(a_recovery(cause=HARDWARE))


def test_a_held_recovery_says_what_it_waits_for() -> None:
    entries = timeline((Phase.DETECTED, 0, ""), (Phase.HELD, 5, "no spare for node-a"))
    status = a_status(Phase.HELD, entries, HARDWARE, held_in=Phase.RESERVING)

    explained = words(a_story(status))

    assert "train-1: Held in Reserving" in explained
    assert "it waits, and goes on by itself when this changes: no spare for node-a" in explained


BUDGET = "node-a is not quarantined: the budget is used up, or healthd may not cordon"
HELD_BY_BUDGET = a_status(
    Phase.HELD, timeline((Phase.DETECTED, 6, ""), (Phase.HELD, 7, BUDGET)), HARDWARE, held_in=Phase.DETECTED
)
NOT_QUARANTINED = (
    "node-a is not in quarantine: the budget is used up or healthd may not cordon; repair another node, or"
)


def test_a_quarantine_that_the_budget_refused_is_not_reported_as_one() -> None:
    findings = [a_finding(), a_finding("xid-48"), a_finding("pcie-slow", quarantines=False)]

    explained = words(a_story(HELD_BY_BUDGET), nodes=[a_node("node-a")], findings=findings)

    assert "taken out of service" not in explained
    assert "00:00:00.004  node-a was found unfit for 0000:3b:00.0/xid-79" in explained
    assert f"{NOT_QUARANTINED} raise quarantine.budget" in explained
    assert "(for 0000:3b:00.0/xid-79 and 0000:3b:00.0/xid-48; lesser: 0000:3b:00.0/pcie-slow)" in explained


def test_a_gang_that_was_not_stopped_is_not_reported_as_stopped() -> None:
    story = explain(a_story(HELD_BY_BUDGET), {}, {})

    explained = words(a_story(HELD_BY_BUDGET), nodes=[a_node("node-a")])

    assert story.stopped_attempt is None
    assert "the node is to blame: healthd has not stopped the gang" in explained
    assert "stop the whole gang" not in explained
    assert NOT_QUARANTINED in explained


def test_a_stopped_gang_reports_which_attempt_was_stopped() -> None:
    assert explain(a_story(), {}, {}).stopped_attempt == 0


@pytest.mark.parametrize(
    ("nodes", "findings", "says"),
    [
        ([], [], "there is no node node-a any more"),
        ([a_node("node-a")], [], "node-a is not in quarantine, and nothing that is on record asks for it"),
        ([a_node("node-a", unschedulable=True)], [a_finding()], "node-a is cordoned, but not by healthd"),
        ([a_node("node-a")], [a_finding()], f"{NOT_QUARANTINED} raise quarantine.budget"),
        ([a_node("node-a")], [a_finding(cleared_at=START)], "nothing that is on record asks for it"),
    ],
    ids=["gone", "given back", "cordoned", "refused", "repaired"],
)
def test_a_bad_node_is_reported_as_it_is_now(nodes: Sequence[Node], findings: Sequence[Finding], says: str) -> None:
    explained = words(a_story(), nodes=nodes, findings=findings)

    assert says in explained
    assert "taken out of service" not in explained


def test_a_quarantine_after_the_recovery_is_another_recovery() -> None:
    record = Record(finding="x", message="x", since=at(5_000))
    node = a_node("node-a", annotations={ANNOTATION_QUARANTINE: msgspec.json.encode(record).decode()})

    explained = words(a_story(), nodes=[node])

    assert "taken out of service" not in explained
    assert "node-a is in quarantine since 00:00:05.000" in explained


def test_the_repair_of_a_node_names_every_finding_that_stands() -> None:
    nodes, _ = the_world()
    findings = [a_finding(), a_finding("xid-48"), a_finding("pcie-slow", quarantines=False)]

    explained = words(a_story(), nodes=list(nodes.values()), findings=findings)

    assert (
        "for 0000:3b:00.0/xid-79 and 0000:3b:00.0/xid-48; lesser: 0000:3b:00.0/pcie-slow; once it is repaired"
        in explained
    )


def test_what_did_not_come_from_the_kernel_has_no_time_stamp_of_it() -> None:
    nodes, _ = the_world()
    seen = Evidence(source="nvml", at=at(0), text="lost")

    explained = words(a_story(), nodes=list(nodes.values()), findings=[a_finding(evidence=[seen])])

    assert "4.0 ms after the first sign on record" in explained


def test_the_places_are_those_where_the_ranks_ran_and_before_that_is_known_the_planned_ones() -> None:
    planned = RECOVERED.attempts[0]
    ran = msgspec.structs.replace(planned, ran_on={"0": "node-x"})

    def explained(attempt: Attempt) -> str:
        return words(a_story(msgspec.structs.replace(RECOVERED, attempts=[attempt])))

    assert "attempt 1 was to resume from step 10; planned ranks: 0 on node-s" in explained(planned)
    assert "attempt 1 was to resume from step 10; ranks: 0 on node-x" in explained(ran)


def test_of_a_large_gang_some_places_are_reported() -> None:
    places = {str(rank): f"node-{rank}" for rank in range(100)}
    attempt = msgspec.structs.replace(RECOVERED.attempts[0], ran_on=places)

    explained = words(a_story(msgspec.structs.replace(RECOVERED, attempts=[attempt])), width=10_000)
    assert "63 on node-63 and 36 more" in explained


def test_a_node_whose_agent_is_dead_is_said_to_be_unknown_by_now() -> None:
    nodes, health = the_world()
    status = msgspec.structs.replace(health["node-a"].status, seen_at=at(0))
    health = {"node-a": msgspec.structs.replace(health["node-a"], status=status)}

    def explained(after: timedelta) -> str:
        return str(explain_sections(explain(a_story(), nodes, health, at(0) + after), width=400))

    assert "the agent on node-a has not reported since 2026-01-01 00:00:00 UTC" in explained(timedelta(days=1))
    assert "nothing was heard" not in explained(timedelta(hours=1))


def test_what_was_seen_only_afterwards_is_no_measure() -> None:
    nodes, _ = the_world()
    seen = Evidence(source="kmsg", at=at(9), text=LINE, sequence=1)

    explained = words(a_story(), nodes=list(nodes.values()), findings=[a_finding(evidence=[seen])])

    assert "taken out of service for 0000:3b:00.0/xid-79\n" in explained


def test_causes_that_joined_are_distinguished() -> None:
    second = a_cause(message="Xid 48 on 0000:5e:00.0", at=at(30), node="node-b")
    crash = a_cause(CauseKind.SOFTWARE, message="train-2 exited with code 1")
    status = msgspec.structs.replace(RECOVERED, causes=[HARDWARE, second, crash])

    explained = words(a_story(status), nodes=[a_node("node-a"), a_node("node-b")])

    assert "the nodes node-a and node-b are to blame: stop the whole gang, and go on without them" in explained
    assert "  hardware: node-a: Xid 79 on 0000:3b:00.0\n" in explained
    assert "  also hardware: node-b: Xid 48 on 0000:5e:00.0\n" in explained
    assert "00:00:00.030  node-b was found unfit\n" in explained
    assert "  also software: train-2 exited with code 1\n" in explained


def test_a_suspect_that_was_replaced_after_a_hang_is_not_said_to_be_used_again() -> None:
    cause = a_cause(CauseKind.HANG, message="no rank works")
    status = a_status(Phase.STARTING, timeline((Phase.STOPPING, 8, "")), cause, replacements={"node-a": "node-s"})
    explained = words(a_recovery(cause=cause, status=status))

    assert "start it again on the same nodes, but for node-a" in explained


def test_a_recovery_given_up_says_what_a_person_has_to_do() -> None:
    why = "3 restarts in a row brought nothing beyond step 10: train-2 exited with code 1"
    crash = a_cause(CauseKind.SOFTWARE, message="train-2 exited with code 1")
    entries = timeline((Phase.STOPPING, 0, ""), (Phase.CHOOSING, 5, ""), (Phase.GAVE_UP, 9, why))

    explained = words(a_story(a_status(Phase.GAVE_UP, entries, crash, no_advance=3)))

    assert f"healthd gave up: {why}. It does nothing more for this gang by itself" in explained
    assert "mend the cause, then start the gang again" in explained
    assert "the whole gang was to stop, and healthd gave up starting it again" in explained


def test_a_recovery_that_stepped_aside_leaves_nothing_to_do() -> None:
    entries = timeline((Phase.DETECTED, 0, ""), (Phase.SUPERSEDED, 5, "the user suspended the gang; it stays so"))

    explained = words(a_story(a_status(Phase.SUPERSEDED, entries, HARDWARE)))

    assert "nothing is left to do for healthd: the user suspended the gang; it stays so" in explained
    assert "the node is to blame: healthd did not stop the gang" in explained


@pytest.mark.parametrize(
    ("count", "says"),
    [(1, "1 restart in a row brought no new step"), (2, "2 restarts in a row brought no new step")],
)
def test_one_restart_is_shown_as_one(count: int, says: str) -> None:
    status = msgspec.structs.replace(RECOVERED, no_advance=count, not_before=at(300))

    assert f"{says}: the next start waited until 00:00:00.300" in words(a_story(status))


def test_a_back_off_that_goes_on_is_reported_as_such() -> None:
    entries = timeline((Phase.STOPPING, 0, ""), (Phase.RESERVING, 5, ""))
    status = a_status(Phase.RESERVING, entries, HARDWARE, no_advance=1, not_before=at(300))

    assert "the next start waits until 00:00:00.300" in words(a_story(status))


def test_a_gang_that_goes_on_smaller_is_explained_by_its_plan() -> None:
    plan = "no spare for node-a: shrinks from 4 to 3 members"
    entries = timeline((Phase.STOPPING, 0, ""), (Phase.STARTING, 5, plan))
    attempts = [Attempt(number=1, checkpoint=ChosenCheckpoint(), placement={"0": "node-b"})]

    explained = words(a_story(a_status(Phase.STARTING, entries, HARDWARE, attempts=attempts)))

    assert plan in explained.partition("Decision")[2].partition("Acts")[0]
    assert "every member stays" not in explained


IN_PLACE = ChosenCheckpoint(path="/ckpt/ckpt.pt", step=-1, format="torch_zip")


def test_a_file_whose_step_no_one_knows_is_identified_by_its_path() -> None:
    attempts = [Attempt(number=1, checkpoint=IN_PLACE)]
    status = msgspec.structs.replace(RECOVERED, checkpoint=IN_PLACE, attempts=attempts, confirmed_step=20)
    refused = RejectedCheckpoint(path="/ckpt/old.pt", step=-1, reason=TORN)

    explained = words(a_story(msgspec.structs.replace(status, rejected=[refused])))

    assert "resume from /ckpt/ckpt.pt (torch_zip, verified)\n" in explained
    assert "attempt 1 was to resume from /ckpt/ckpt.pt;" in explained
    assert "beyond /ckpt/ckpt.pt that was loaded" in explained
    assert f"refused /ckpt/old.pt: {TORN}" in explained
    assert "step -1" not in explained
    assert row(a_story(status))[5] == "?"


def test_a_fresh_start_has_no_step_before_it() -> None:
    fresh = msgspec.structs.replace(RECOVERED, checkpoint=ChosenCheckpoint(), rejected=[], step_at_fault=-1)

    explained = words(a_story(fresh))

    assert "a fresh start: nothing was ever saved" in explained
    assert "step 20 was seen and verified, after a fresh start" in explained


def test_a_fresh_start_in_spite_of_saved_work_says_what_it_costs() -> None:
    explained = words(a_story(msgspec.structs.replace(RECOVERED, checkpoint=ChosenCheckpoint())))

    assert "a fresh start, although there was something saved; at least 20 steps to do again" in explained


def test_a_fault_of_the_software_needs_no_spare() -> None:
    crash = a_cause(CauseKind.SOFTWARE, message="train-2 exited with code 1")
    attempt = Attempt(number=2, checkpoint=ChosenCheckpoint(), placement={})
    status = a_status(Phase.STARTING, timeline((Phase.STARTING, 0, "")), crash, attempts=[attempt])

    explained = words(a_story(status))

    assert "a fault of the software" in explained
    assert "every member stays on its node" in explained
    assert "stop the whole gang" not in explained


def test_a_pod_without_proof_stands_out() -> None:
    pods = [FencedPod(name="train-0-x", uid="u", node="node-a")]
    explained = words(a_story(a_status(Phase.FENCING, timeline((Phase.FENCING, 0, "")), HARDWARE, pods=pods)))

    assert "train-0-x: NOT PROVEN to be gone" in explained


def test_no_line_is_wider_than_asked() -> None:
    assert max(len(line) for line in words(a_story(), width=80).splitlines()[1:]) <= 80


def test_one_line_sums_up_a_recovery() -> None:
    assert row(a_story()) == (
        "train-1", "train", "Recovered", "hardware", "node-a", "10", "414 ms", "1.50 s", "training moved on to step 20",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("ms", "text"),
    [(0.42, "0.4 ms"), (212.3, "212 ms"), (2413, "2.41 s"), (200_000, "3 min 20 s"), (3_600_000, "60 min 0 s")],
)
def test_durations_are_short(ms: float, text: str) -> None:
    assert duration(ms) == text
