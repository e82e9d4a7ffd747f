"""What is known of the work of a gang's ranks, and the record of stragglers on its root."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from healthd.core.api import ContainerState, ContainerStatus, PodStatus, Running
from healthd.core.api.health import GpuClock, GpuClocks, GpuWork, HostBoundGpu, MemberState, PodWork
from healthd.core.hang.silence import Silence
from healthd.core.hang.straggler import ShownBy, Straggler
from healthd.core.hang.work.slow_in_pods import Source
from healthd.core.recovery.gang import GangView, Root
from healthd.core.recovery.hangs.gang_stragglers import (
    KEPT,
    clocks_of,
    gpu_work_of,
    next_record,
    open_stragglers,
    slow_in_pods_of,
    stopped,
    work_of,
)
from tests.builders import a_node
from tests.core.gangs import a_root
from tests.core.recovery.silences import (
    NOW,
    a_gang,
    a_gpu_gang,
    a_gpu_rank,
    a_rank,
    a_report,
    a_rhythm,
    ago,
    gpus,
)

WORK = PodWork(end=ago(40), seconds=15, cores=[4.0] * 24)
SLOW = Straggler(
    rank="1", slower=0.1, since=ago(300), seen_at=ago(200), ran=1, starved=0, peers_ran=0.9, peers_starved=0,
    confidence=0.9,
)  # fmt: skip


def working(**fields: Any) -> GangView:
    """Two ranks that work."""
    return a_gang(**{"health": {f"node-{n}": report(n) for n in range(2)}, **fields})


def report(number: int, work: PodWork | None = WORK, **fields: Any) -> Any:
    rhythm = a_rhythm(number, state=MemberState.WORKING, since=None)
    return a_report(number, msgspec.structs.replace(rhythm, work=work), **fields)


def test_the_work_of_a_whole_gang_is_known_by_rank() -> None:
    work = work_of(working(), NOW)

    assert work is not None
    assert {name: (each.pod, each.work) for name, each in work.items()} == {
        "0": ("uid-train-0", WORK),
        "1": ("uid-train-1", WORK),
    }


STARTED = PodStatus(
    phase="Running",
    container_statuses=[ContainerStatus(name="main", state=ContainerState(running=Running(started_at=ago(10))))],
)


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"health": {"node-0": report(0)}}, id="no agent"),
        pytest.param({"health": {"node-0": report(0), "node-1": report(1, None)}}, id="an agent of an older healthd"),
        pytest.param({"health": {"node-0": report(0), "node-1": report(1, seen_at=ago(4 * 3600))}}, id="a dead agent"),
        pytest.param({"health": {"node-0": report(0), "node-1": report(0)}}, id="listed by another node"),
        pytest.param({"nodes": {"node-0": a_node("node-0")}}, id="no node"),
        pytest.param({"pods": (a_rank(0),)}, id="a member is missing"),
        pytest.param({"pods": (a_rank(0), a_rank(1, phase="Pending"))}, id="a member starts"),
        pytest.param({"pods": (a_rank(0), a_rank(1, status=STARTED))}, id="its container started since"),
        pytest.param({"root": a_root(suspended=True)}, id="it is suspended"),
        pytest.param({"root": None}, id="no root"),
    ],
)
def test_what_is_not_known_of_one_rank_makes_the_gang_unknown(fields: dict[str, Any]) -> None:
    assert work_of(working(**fields), NOW) is None


CLOCKS = GpuClocks(begin=ago(115), end=ago(40), usual=1755, highest=1980, gpus=[GpuClock(pci="0000:3b:00.0", mhz=1740)])


def clocked(clocks: GpuClocks | None = CLOCKS, *, held: str = "8", **fields: Any) -> GangView:
    """Two ranks whose nodes publish how fast their GPUs run, the second one *clocks*."""
    listed = [[msgspec.structs.replace(gpus(MemberState.WORKING), clocks=each)] for each in (CLOCKS, clocks)]
    return msgspec.structs.replace(a_gpu_gang(*listed, held=held), **fields)


def test_the_clocks_of_ranks_that_have_all_gpus_of_their_nodes_are_known_by_rank() -> None:
    assert clocks_of(clocked(), NOW) == {"0": CLOCKS, "1": CLOCKS}
    assert clocks_of(clocked(held="4"), NOW) == {}


LATE = HostBoundGpu(pci="0000:3b:00.0", since=ago(60), slower=0.1, idle=0.11, peers_idle=0.02, confidence=0.75)


def late(gpu: HostBoundGpu = LATE, *, held: str = "8") -> Mapping[Source, Sequence[Straggler]]:
    """What is known of two ranks, of which the node of the second lists *gpu*."""
    listed = [[msgspec.structs.replace(gpus(MemberState.WORKING), host_bound_gpus=each)] for each in ([], [gpu])]
    return slow_in_pods_of(a_gpu_gang(*listed, held=held), NOW)


def test_a_gpu_that_others_of_its_node_wait_for_is_a_slow_rank_where_its_pod_has_all_of_them() -> None:
    (found,) = [each for mine in late().values() for each in mine]

    assert (found.rank, found.gpu, found.since, found.slower) == ("1", "0000:3b:00.0", ago(60), 0.1)
    assert (found.idle, found.peers_idle, found.shown_by) == (0.11, 0.02, ShownBy.AGENT)
    assert [source for source in late(held="4") if source.of_gpus] == []


@pytest.mark.parametrize(
    "strange",
    [
        pytest.param(msgspec.structs.replace(LATE, since=ago(100_000)), id="of the pod before"),
        pytest.param(msgspec.structs.replace(LATE, since=ago(-60)), id="of a clock that is ahead"),
        pytest.param(msgspec.structs.replace(LATE, idle=0.0), id="it has always something to do"),
    ],
)
def test_what_is_listed_of_another_gpu_is_no_slow_rank(strange: HostBoundGpu) -> None:
    assert [each for mine in late(strange).values() for each in mine] == []


GPU_WORK = GpuWork(end=ago(10), seconds=15, memory=[0.4] * 20, idle=[0.02] * 20)


def worked(work: GpuWork | None = GPU_WORK, *, held: str = "8", **fields: Any) -> GangView:
    """Two ranks whose nodes publish what their GPUs do, the second one *work*."""
    listed = [[msgspec.structs.replace(gpus(MemberState.WORKING), gpu_work=each)] for each in (GPU_WORK, work)]
    return msgspec.structs.replace(a_gpu_gang(*listed, held=held), **fields)


def test_what_the_gpus_of_ranks_do_is_known_where_these_have_all_of_their_nodes() -> None:
    known = gpu_work_of(worked(), NOW)

    assert known is not None
    assert {rank: each.work for rank, each in known.items()} == {"0": GPU_WORK, "1": GPU_WORK}
    assert gpu_work_of(worked(held="4"), NOW) is None
    assert gpu_work_of(worked(None), NOW) is None
    assert gpu_work_of(worked(root=None), NOW) is None


def test_what_gpus_did_before_the_pod_is_not_of_it() -> None:
    status = msgspec.structs.replace(
        STARTED,
        container_statuses=[ContainerStatus(name="main", state=ContainerState(running=Running(started_at=ago(70))))],
    )
    pods = (a_gpu_rank(0), msgspec.structs.replace(a_gpu_rank(1), status=status))
    known = gpu_work_of(worked(pods=pods), NOW)

    assert known is not None
    assert (len(known["0"].work.memory), known["1"].work.memory, known["1"].work.idle) == (20, [0.4] * 4, [0.02] * 4)
    pods = (a_gpu_rank(0), msgspec.structs.replace(a_gpu_rank(1), status=STARTED))
    assert gpu_work_of(worked(pods=pods), NOW) is None


@pytest.mark.parametrize(
    "strange",
    [
        pytest.param(None, id="not published"),
        pytest.param(msgspec.structs.replace(CLOCKS, end=ago(300)), id="too old"),
        pytest.param(msgspec.structs.replace(CLOCKS, end=ago(-60)), id="of a clock that is ahead"),
        pytest.param(msgspec.structs.replace(CLOCKS, begin=ago(100_000)), id="of the pod before"),
    ],
)
def test_what_is_not_known_of_one_rank_leaves_that_one_out(strange: GpuClocks | None) -> None:
    assert clocks_of(clocked(strange), NOW).keys() == {"0"}


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"pods": (a_gpu_rank(0),)}, id="a member is missing"),
        pytest.param({"root": a_root(suspended=True)}, id="it is suspended"),
        pytest.param({"root": None}, id="no root"),
        pytest.param({"nodes": {}}, id="no nodes"),
        pytest.param({"health": {}}, id="no agents"),
    ],
)
def test_a_gang_that_is_not_whole_has_no_clocks(fields: dict[str, Any]) -> None:
    assert clocks_of(clocked(**fields), NOW) == {}


def test_a_launcher_is_no_rank() -> None:
    launcher = a_rank(2, name="launcher", index=None, node="node-3")
    view = working(root=a_root(world=3), pods=(a_rank(0), a_rank(1), launcher))

    assert (work_of(view, NOW) or {}).keys() == {"0", "1"}


def test_a_gang_of_one_has_no_rank_to_compare_with() -> None:
    assert work_of(working(root=a_root(world=1), pods=(a_rank(0),)), NOW) is None


def recorded(*record: Straggler, **fields: Any) -> Root:
    return replace(a_root(**fields), stragglers=record)


def test_a_change_takes_the_place_of_what_was_known_and_only_the_newest_are_kept() -> None:
    over = msgspec.structs.replace(SLOW, ended_at=NOW)
    others = [msgspec.structs.replace(SLOW, rank=str(number)) for number in range(10, 10 + KEPT)]

    assert next_record(recorded(), [SLOW]) == [SLOW]
    assert next_record(recorded(SLOW), [over]) == [over]
    assert next_record(recorded(SLOW), [SLOW]) is None
    assert next_record(recorded(SLOW), others) == others


@pytest.mark.parametrize(
    ("root", "is_open"),
    [
        (recorded(SLOW), True),
        (recorded(msgspec.structs.replace(SLOW, ended_at=NOW)), False),
        (recorded(msgspec.structs.replace(SLOW, since=NOW + timedelta(days=1))), False),
        (recorded(SLOW, suspended=True), False),
        (recorded(SLOW, started_at=ago(10)), False),
        (recorded(SLOW, started_at=ago(1000)), True),
    ],
)
def test_which_are_slow_now_as_far_as_the_root_shows(root: Root, is_open: bool) -> None:
    assert bool(open_stragglers(root, NOW)) is is_open


@pytest.mark.parametrize(
    ("root", "pods", "over"),
    [
        (recorded(SLOW), (a_rank(0), a_rank(1)), []),
        (recorded(SLOW), (a_rank(0), a_rank(1, creation_timestamp=ago(5))), ["1"]),
        (recorded(SLOW, suspended=True), (), ["1"]),
        (recorded(msgspec.structs.replace(SLOW, ended_at=ago(1)), suspended=True), (), []),
    ],
)
def test_a_gang_that_was_stopped_has_none_that_is_slow(root: Root, pods: Any, over: Sequence[str]) -> None:
    ended = stopped(working(root=root, pods=pods), NOW)

    assert [each.rank for each in ended] == over
    assert all(each.was_stopped and each.ended_at == NOW for each in ended)


@pytest.mark.parametrize("end", [{}, {"ended_at": NOW, "was_stopped": True}])
def test_one_whose_gang_hung_until_it_was_stopped_was_slow_until_the_hang_began(end: Mapping[str, Any]) -> None:
    began = SLOW.since + timedelta(seconds=30)
    hang = Silence(since=began, seen_at=began, allowed=10, period=1, members=(), **end)

    [ended] = stopped(working(root=recorded(SLOW, suspended=True, silence=hang), pods=()), NOW)

    assert (ended.ended_at, ended.was_stopped, ended.hung) == (began, True, True)


@pytest.mark.parametrize(("since", "end"), [(-30, {}), (30, {"ended_at": NOW})])
def test_a_hang_before_it_became_slow_or_that_was_over_does_not_end_it(since: int, end: Mapping[str, Any]) -> None:
    began = SLOW.since + timedelta(seconds=since)
    hang = Silence(since=began, seen_at=began, allowed=10, period=1, members=(), **end)

    [ended] = stopped(working(root=recorded(SLOW, suspended=True, silence=hang), pods=()), NOW)

    assert (ended.ended_at, ended.hung) == (NOW, False)
