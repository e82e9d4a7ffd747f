"""When all ranks of a gang are silent by the reports of their agents, and what must not be taken for that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from healthd.core.api import (
    Condition,
    ContainerState,
    ContainerStatus,
    Node,
    NodeHealth,
    NodeHealthStatus,
    Pod,
    PodStatus,
)
from healthd.core.api.health import Device, MemberState, PodActivity, PodProcess, PodRhythm
from healthd.core.api.kubernetes.pods import Container, ContainerResources, Running
from healthd.core.config import HangPolicy
from healthd.core.config.gangs import SilenceMode
from healthd.core.hang.describe import describe, why_hang
from healthd.core.node.reporting import RENEW_AFTER
from healthd.core.recovery.gang import GangOptions, GangView, Root, RootOutcome
from healthd.core.recovery.hangs.gang_silence import (
    FRESH,
    ObservedSilence,
    mode_of,
    observed_silence,
    ranks,
    to_restart_for,
)
from healthd.core.recovery.progress import Progress, is_past_waiting
from tests.builders import a_node, a_nodehealth
from tests.core.gangs import a_root
from tests.core.recovery.silences import NOW, a_gang, a_rank, a_report, a_rhythm, ago

POLICY = HangPolicy()
GPU = Container(image="train", resources=ContainerResources(limits={"nvidia.com/gpu": "8"}))


def reporting(*reports: NodeHealth) -> GangView:
    """The gang where these reports replace those of the same nodes."""
    return a_gang(health={**a_gang().health, **{report.metadata.name: report for report in reports}})


def seen(view: GangView, policy: HangPolicy = POLICY) -> ObservedSilence | None:
    return observed_silence(view, policy, NOW)


def test_a_gang_whose_ranks_are_all_silent_hangs() -> None:
    view = reporting(a_report(1, a_rhythm(1, state=MemberState.WAITING, since=ago(58), allowed=20.0, period=3.0)))
    found = seen(view)

    assert found is not None
    assert (found.silence.since, found.silence.seen_at) == (ago(58), NOW)
    assert (found.silence.allowed, found.silence.period) == (20.0, 3.0)
    assert [(each.rank, each.state) for each in found.silence.members] == [("0", "silent"), ("1", "waiting")]
    assert found.doubt == ""


NOT_READY = Condition(type="Ready", status="Unknown")
STARTED_LATER = ContainerStatus(name="main", state=ContainerState(running=Running(started_at=ago(50))))


@pytest.mark.parametrize(
    "view",
    [
        pytest.param(a_gang(health={}), id="no agent at all"),
        pytest.param(a_gang(health={"node-0": a_gang().health["node-0"]}), id="one node without an agent"),
        pytest.param(reporting(a_nodehealth("node-1")), id="a report that lists no pods, as of an older agent"),
        pytest.param(reporting(a_report(1, a_rhythm(2))), id="the rhythm of one rank is not known"),
        pytest.param(reporting(a_report(1), a_report(2, a_rhythm(1))), id="the pod is listed by another node"),
        pytest.param(reporting(a_report(1, a_rhythm(1, state=MemberState.WORKING, since=None))), id="one rank works"),
        pytest.param(reporting(a_report(1, a_rhythm(1, state=MemberState.UNKNOWN))), id="one rank is unknown"),
        pytest.param(reporting(a_report(1, a_rhythm(1, since=None))), id="since when is not said"),
        pytest.param(reporting(a_report(1, a_rhythm(1, since=ago(-60)))), id="since a time to come"),
        pytest.param(reporting(a_report(1, a_rhythm(1), seen_at=ago(61))), id="reported before it was silent"),
        pytest.param(reporting(a_report(1, a_rhythm(1, allowed=61.0))), id="one rank may be silent for longer"),
        pytest.param(reporting(a_report(1, a_rhythm(1, allowed=1e308))), id="one rank may be silent for ever"),
        pytest.param(reporting(a_report(1, a_rhythm(1, since=ago(5), allowed=0.0))), id="shorter than any hang"),
        pytest.param(reporting(a_report(1, a_rhythm(1, since=ago(600)))), id="one rank fell silent long before"),
        pytest.param(reporting(a_report(1, a_rhythm(1), boot_id="boot-2")), id="a report of another boot"),
        pytest.param(
            reporting(*(a_report(n, a_rhythm(n, since=ago(14_400)), seen_at=ago(14_300)) for n in range(2))),
            id="the agents have been silent for hours",
        ),
        pytest.param(
            a_gang(nodes={**a_gang().nodes, "node-1": a_node("node-1", conditions=[NOT_READY])}),
            id="the kubelet of one node does not report",
        ),
        pytest.param(a_gang(nodes={"node-0": a_node("node-0")}), id="one node is gone"),
        pytest.param(a_gang(pods=(a_rank(0),)), id="a member is missing"),
        pytest.param(a_gang(pods=(a_rank(0), a_rank(1, phase="Pending"))), id="a member has not started"),
        pytest.param(a_gang(pods=(a_rank(0), a_rank(1, phase="Failed"))), id="a member has failed"),
        pytest.param(a_gang(pods=(a_rank(0), a_rank(1, deletion_timestamp=ago(1)))), id="a member is being deleted"),
        pytest.param(a_gang(pods=(a_rank(0), a_rank(1, uid=""))), id="a pod without a uid"),
        pytest.param(a_gang(pods=(a_rank(0, phase="Succeeded"), a_rank(1, phase="Succeeded"))), id="all have ended"),
        pytest.param(
            a_gang(
                pods=(
                    a_rank(0),
                    msgspec.structs.replace(
                        a_rank(1), status=PodStatus(phase="Running", container_statuses=[STARTED_LATER])
                    ),
                )
            ),
            id="its container was restarted since",
        ),
    ],
)
def test_what_is_not_known_is_no_hang(view: GangView) -> None:
    assert seen(view) is None


@pytest.mark.parametrize(
    "root",
    [
        None,
        a_root(suspended=True),
        a_root(deleting=True),
        a_root(has_begun=False),
        a_root(invalid=("it cannot be read",)),
        a_root(ending=RootOutcome.COMPLETE),
        a_root(attempt=1),
    ],
)
def test_a_gang_that_does_not_run_does_not_hang(root: Root | None) -> None:
    assert seen(a_gang(root=root)) is None


def test_a_member_that_has_succeeded_is_not_waited_for() -> None:
    view = a_gang(pods=(a_rank(0), a_rank(1, phase="Succeeded")), health={"node-0": a_report(0, a_rhythm(0))})

    assert seen(view) is not None


LAUNCHER = a_rank(2, name="train-launcher", index=None)
HEAD = a_rank(2, name="train-head", index=None)


def with_launcher(launcher: Pod, *rhythms: PodRhythm, container: Container = GPU, index: bool = True) -> GangView:
    """The gang with one more member, of which its agent publishes *rhythms*."""
    unnumbered: dict[str, Any] = {} if index else {"index": None}
    workers = [a_rank(n, container=container, **unnumbered) for n in range(2)]
    health = {**a_gang().health, "node-2": a_report(2, *rhythms)}
    return a_gang(root=a_root(world=3), pods=(*workers, launcher), health=health)


def of_launcher(pod: Pod, **fields: Any) -> PodRhythm:
    return a_rhythm(2, uid=pod.metadata.uid, **fields)


@pytest.mark.parametrize(
    "view",
    [
        pytest.param(with_launcher(LAUNCHER), id="a launcher without a rhythm"),
        pytest.param(with_launcher(LAUNCHER, container=Container()), id="a launcher without a number"),
        pytest.param(with_launcher(HEAD, index=False), id="a head without a GPU"),
        pytest.param(with_launcher(LAUNCHER, of_launcher(LAUNCHER, since=ago(3000))), id="it has idled for long"),
    ],
)
def test_a_launcher_that_idles_hides_no_hang(view: GangView) -> None:
    found = seen(view)

    assert found is not None
    assert len(found.silence.members) == 2
    assert found.doubt == ""


def test_a_launcher_is_no_witness_of_a_hang() -> None:
    silent = with_launcher(LAUNCHER, of_launcher(LAUNCHER))
    ended = msgspec.structs.replace(
        silent, pods=(*(a_rank(n, container=GPU, phase="Succeeded") for n in range(2)), LAUNCHER)
    )

    assert seen(msgspec.structs.replace(silent, health={"node-2": silent.health["node-2"]})) is None
    assert ranks(ended) == []
    assert seen(ended) is None


def test_a_gang_whose_launcher_works_is_not_restarted() -> None:
    found = seen(with_launcher(LAUNCHER, of_launcher(LAUNCHER, state=MemberState.WORKING, since=None)))

    assert found is not None
    assert found.doubt == "train-launcher, which is no rank, works"


def saved(seconds_ago: float) -> GangView:
    return a_gang(root=a_root(progress=Progress(step=9, at=ago(seconds_ago), intervals=[60.0] * 3)))


def test_a_silence_in_which_a_checkpoint_appeared_is_no_hang_until_the_floor_has_passed() -> None:
    assert seen(saved(30)) is None
    assert seen(saved(30), HangPolicy(floor=timedelta(seconds=20))) is not None
    assert seen(saved(90)) is not None


def saved_after(silent: float, saved: float, *, interval: float = 1500.0) -> GangView:
    """The ranks fell silent, and then a step was read, so many seconds ago."""
    root = a_root(progress=Progress(step=9, at=ago(saved), intervals=[60.0, interval, 60.0]))
    return a_gang(root=root, health={f"node-{n}": a_report(n, a_rhythm(n, since=ago(silent))) for n in range(2)})


def test_a_gang_that_saved_long_after_its_ranks_fell_silent_works_until_two_saves_are_missing() -> None:
    read_late, made_later = saved_after(silent=1000, saved=890), saved_after(silent=1000, saved=870)

    assert seen(read_late) is not None
    assert seen(made_later) is None
    assert seen(saved_after(silent=3500, saved=2999)) is None
    assert seen(saved_after(silent=3500, saved=3001)) is not None


def a_start(number: int, *, cpu: float | None = 0.01, **fields: Any) -> PodRhythm:
    """A rank that has done nothing for three minutes, before its rhythm is known."""
    activity = PodActivity(cpu=cpu) if cpu is not None else None
    known: dict[str, Any] = {"since": ago(180), "allowed": 120.0, "period": 0.0, "worked": 0.0, "activity": activity}
    return a_rhythm(number, is_start=True, **{**known, **fields})


def starting(first: PodRhythm, **fields: Any) -> GangView:
    reports = (a_report(0, first), a_report(1, a_start(1, since=ago(1800))))
    return a_gang(health={report.metadata.name: report for report in reports}, **fields)


def test_a_start_in_which_no_rank_does_anything_hangs_though_one_has_waited_for_long() -> None:
    found = seen(starting(a_start(0)))

    assert found is not None
    assert found.silence.since == ago(180)
    assert why_hang(found.silence) == (
        "no rank has done anything for 180 s, before the rhythm of every rank was known: ranks 0, 1 sleep"
    )
    assert not is_past_waiting(found.silence, Progress(attempt=1), POLICY, 1, NOW + timedelta(days=1))


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(a_start(0, cpu=0.03), id="it uses what a light step does"),
        pytest.param(a_start(0, cpu=None), id="what it uses is not known"),
        pytest.param(a_start(0, state=MemberState.WORKING, since=None), id="it works again"),
        pytest.param(a_start(0, since=ago(100)), id="not for long enough"),
    ],
)
def test_a_start_that_may_do_something_is_no_hang(first: PodRhythm) -> None:
    assert seen(starting(first)) is None


EIGHT = [Device(pci=f"0000:{number:02x}:00.0") for number in range(8)]


@pytest.mark.parametrize(
    ("inventory", "idle", "hangs"),
    [(EIGHT, 8, True), (EIGHT, 7, False), (EIGHT, 0, False), ([], 0, False), ([], 8, True)],
    ids=["all are idle", "one says nothing", "none says anything", "none is known", "not listed yet"],
)
def test_eight_ranks_of_a_pod_may_use_more_where_all_gpus_of_their_node_are_seen_to_be_idle(
    inventory: list[Device], idle: int, hangs: bool
) -> None:
    """Those in MIG mode say nothing, and an inventory is remembered when the driver does not answer."""
    rhythms = [a_start(0, cpu=0.06, idle_gpus=idle)]
    status = NodeHealthStatus(rhythms=rhythms, seen_at=ago(30), boot_id="boot-1", inventory=inventory)
    health = {"node-0": a_nodehealth("node-0", status=status)}
    view = a_gang(root=a_root(world=1), pods=(a_rank(0, container=GPU),), health=health)

    assert (seen(view) is not None) == hangs


@pytest.mark.parametrize(
    ("launcher", "hangs"),
    [
        ([], False),
        ([a_start(2, uid=LAUNCHER.metadata.uid)], True),
        ([of_launcher(LAUNCHER, state=MemberState.WORKING, since=None)], False),
    ],
    ids=["unknown", "idles", "works"],
)
def test_a_start_may_wait_for_a_launcher(launcher: list[PodRhythm], hangs: bool) -> None:
    """As the workers of a RayCluster do whose head has no work for them."""
    view = with_launcher(LAUNCHER, *launcher, container=Container())
    starts = {f"node-{n}": a_report(n, a_start(n)) for n in range(2)}

    assert (seen(msgspec.structs.replace(view, health={**view.health, **starts})) is not None) == hangs


@pytest.mark.parametrize(("other", "least"), [(72000.0, 36000.0), (30.0, 30.0), (None, None)])
def test_a_gang_has_worked_as_long_as_the_rank_of_which_the_least_is_known(
    other: float | None, least: float | None
) -> None:
    found = seen(reporting(a_report(0, a_rhythm(0)), a_report(1, a_rhythm(1, worked=other))))

    assert found is not None
    assert found.silence.worked == least


def test_a_report_that_was_not_renewed_is_not_enough_for_a_restart() -> None:
    silent = [a_rhythm(number, since=ago(150)) for number in range(2)]
    by_a_dead_agent = a_report(0, silent[0], seen_at=ago(120))
    found = seen(reporting(by_a_dead_agent, a_report(1, silent[1])))

    assert found is not None
    assert found.doubt == "the report of node node-0 is 120 s old"


def test_an_agent_that_lives_renews_its_report_in_time_for_a_restart() -> None:
    assert RENEW_AFTER + timedelta(seconds=15) < FRESH


RESTART, TELL, IGNORE = SilenceMode.RESTART, SilenceMode.TELL, SilenceMode.IGNORE


@pytest.mark.parametrize(
    ("configured", "of_owner", "enabled", "expected"),
    [
        (TELL, None, True, TELL),
        (TELL, RESTART, True, RESTART),
        (RESTART, TELL, True, TELL),
        (RESTART, IGNORE, True, IGNORE),
        (IGNORE, RESTART, True, RESTART),
        (RESTART, RESTART, False, IGNORE),
    ],
)
def test_the_owner_of_a_gang_may_choose_what_happens(
    configured: SilenceMode, of_owner: SilenceMode | None, enabled: bool, expected: SilenceMode
) -> None:
    root = a_root(options=GangOptions(restart=True, hang=of_owner))

    assert mode_of(root, HangPolicy(silence=configured, enabled=enabled)) is expected


def test_only_a_silence_without_doubt_is_restarted_for_and_only_on_request() -> None:
    found = seen(a_gang())
    assert found is not None

    assert to_restart_for(a_root(), found, HangPolicy(silence=RESTART)) == found.silence
    assert to_restart_for(a_root(), found, HangPolicy()) is None
    assert to_restart_for(a_root(), found._replace(doubt="it is old"), HangPolicy(silence=RESTART)) is None


def _reversed(items: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(reversed(items))


@pytest.mark.parametrize("order", [tuple, _reversed])
def test_the_order_of_pods_does_not_matter(order: Callable[[Sequence[Pod]], tuple[Pod, ...]]) -> None:
    found = seen(a_gang(pods=order(a_gang().pods)))

    assert found is not None
    assert found.silence.since == ago(60)


def test_a_large_gang_is_judged_whole() -> None:
    pods = tuple(a_rank(number) for number in range(300))
    nodes: dict[str, Node] = {pod.spec.node_name: a_node(pod.spec.node_name) for pod in pods}
    health = {f"node-{number}": a_report(number, a_rhythm(number)) for number in range(300)}
    view = a_gang(root=a_root(world=300), pods=pods, nodes=nodes, health=health)
    one_works = {**health, "node-299": a_report(299, a_rhythm(299, state=MemberState.WORKING, since=None))}

    assert seen(view) is not None
    assert seen(msgspec.structs.replace(view, health=one_works)) is None


def four_ranks(*activities: PodActivity | None) -> GangView:
    """Four ranks on four nodes that are silent, and what their agents saw of them."""
    numbers = range(len(activities))
    return a_gang(
        root=a_root(world=len(activities)),
        pods=tuple(map(a_rank, numbers)),
        nodes={f"node-{number}": a_node(f"node-{number}") for number in numbers},
        health={f"node-{n}": a_report(n, a_rhythm(n, activity=activities[n])) for n in numbers},
    )


class TestWhoHoldsUp:
    def test_the_rank_that_differs_is_suspected_with_its_pod_and_its_node(self) -> None:
        found = seen(four_ranks(*[PodActivity(cpu=1.0)] * 3, PodActivity(cpu=0.01)))

        assert found is not None
        (suspect,) = found.silence.suspects
        assert (suspect.member, suspect.pod, suspect.node, suspect.witnesses) == ("3", "train-3", "node-3", 1)
        assert (suspect.confidence, suspect.words) == (0.35, ["activity: CPU 0.01 cores; most ranks have 1"])
        assert found.silence.located == (
            "rank 3 on node-3 holds up the others (35% sure): CPU 0.01 cores; most ranks have 1"
        )

    def test_a_rank_that_waits_for_a_disk_is_shown_so(self) -> None:
        found = seen(four_ranks(PodActivity(io_wait=0.9), *[PodActivity()] * 3))

        assert found is not None
        assert describe(found.silence) == "rank 0 waits for a device or a file system; ranks 1, 2, 3 sleep"
        assert [each.member for each in found.silence.suspects] == ["0"]

    def test_a_rank_whose_process_is_stopped_is_shown_so(self) -> None:
        stopped = PodActivity(process=PodProcess(state="stopped"))
        found = seen(four_ranks(*[PodActivity()] * 3, stopped))

        assert found is not None
        assert [each.states for each in found.silence.members] == ["", "", "", "T"]

    def test_where_no_rank_differs_the_reason_is_said(self) -> None:
        found = seen(four_ranks(*[PodActivity()] * 4))

        assert found is not None
        assert found.silence.suspects == ()
        assert found.silence.located.startswith(
            "no rank is named: no rank differs from the others in what is known of them"
        )

    def test_agents_of_an_older_healthd_name_no_rank(self) -> None:
        found = seen(four_ranks(None, None, None, None))

        assert found is not None
        assert found.silence.located == "no rank is named: nothing is known of any rank"
