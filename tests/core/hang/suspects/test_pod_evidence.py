"""What the agents saw of the pods of a gang that hangs, and who is suspected by it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from healthd.core.api.health import (
    MOST_CONNECTIONS,
    MemberState,
    PodActivity,
    PodConnection,
    PodFrame,
    PodNetwork,
    PodProcess,
    PodRhythm,
)
from healthd.core.hang.suspects.evidence import (
    Connection,
    Frame,
    NetworkEvidence,
    ProcessEvidence,
    RankEvidence,
    Stack,
    TaskState,
)
from healthd.core.hang.suspects.pod_evidence import pod_evidence, published_process, waits_for_io
from healthd.core.hang.suspects.vote import HangLocation, vote
from tests.fakes import START

POLLS = PodActivity(cpu=8.02)
SLEEPS = PodActivity(cpu=0.003, io_wait=0.0)
LOOKS = PodActivity(cpu=0.0024)
"""Threads of it look now and then whether something has come."""
STOPPED = PodActivity(cpu=0.0)


def quiet(activity: PodActivity | None) -> PodRhythm:
    return PodRhythm(uid="uid", state=MemberState.SILENT, since=START, period=2, allowed=12, activity=activity)


def voted(*activities: PodActivity | None) -> HangLocation:
    """The vote over pods that do this, one on each node."""
    seen = (pod_evidence(quiet(each), rank, f"train-{rank}", f"node-{rank}") for rank, each in enumerate(activities))
    return vote([each for each in seen if each is not None])


def suspected(*activities: PodActivity | None) -> list[str]:
    return [f"{suspect.pod} on {suspect.node}" for suspect in voted(*activities).suspects]


def test_the_one_that_does_nothing_while_all_others_poll_is_suspected() -> None:
    location = voted(POLLS, POLLS, SLEEPS, POLLS)

    assert location.nodes == ["node-2"]
    assert [witness.words for witness in location.suspects[0].witnesses] == [
        "CPU 0.003 cores; most ranks have 8.02",
    ]


def test_the_one_that_spins_while_all_others_sleep_is_suspected() -> None:
    assert suspected(SLEEPS, PodActivity(cpu=1.0), SLEEPS, SLEEPS) == ["train-1 on node-1"]


def test_the_one_that_uses_no_processor_at_all_while_threads_of_all_others_look_for_work_is_suspected() -> None:
    (suspect,) = voted(LOOKS, LOOKS, STOPPED, LOOKS).suspects

    assert (suspect.rank, suspect.confidence, suspect.strength) == (2, 0.6, 1)
    assert [witness.words for witness in suspect.witnesses] == [
        "uses no processor at all; each of the others uses 0.0024 cores or more",
    ]


def test_the_one_that_waits_for_its_disk_is_suspected_and_all_others_wait_for_it() -> None:
    location = voted(SLEEPS, SLEEPS, PodActivity(cpu=0.001, io_wait=0.63), SLEEPS)
    (suspect,) = location.suspects

    assert suspect.rank == 2
    assert suspect.witnesses[0].words == "its process is in the kernel and cannot be interrupted, in io_schedule"


def test_a_frozen_container_is_suspected_also_of_two() -> None:
    location = voted(SLEEPS, PodActivity(frozen=True))

    assert location.nodes == ["node-1"]
    assert location.suspects[0].witnesses[0].words == "its process is frozen"


def test_what_a_control_group_shows_is_never_more_than_one_witness() -> None:
    (suspect,) = voted(POLLS, POLLS, PodActivity(cpu=0.0, io_wait=0.9), POLLS).suspects

    assert len(suspect.witnesses) == 2
    assert suspect.strength == 1


@pytest.mark.parametrize(
    "activities",
    [
        pytest.param([SLEEPS] * 4, id="all sleep, as over gloo when one was stopped"),
        pytest.param([POLLS] * 4, id="all poll"),
        pytest.param([POLLS, POLLS, SLEEPS, SLEEPS], id="half of them"),
        pytest.param([POLLS, SLEEPS], id="two ranks have no majority"),
        pytest.param([PodActivity(cpu=each) for each in (0.9, 1.0, 1.1, 1.2)], id="no gap"),
        pytest.param([PodActivity(cpu=each) for each in (8.0, 8.0, 7.0, 8.0)], id="one of eight processes of a pod"),
        pytest.param([PodActivity(io_wait=0.8)] * 4, id="a file system that all wait for"),
        pytest.param([PodActivity(cpu=0.003, io_wait=0.4), SLEEPS, SLEEPS, SLEEPS], id="a disk that was busy before"),
        pytest.param([STOPPED] * 4, id="none uses a processor"),
        pytest.param([LOOKS, STOPPED, STOPPED, LOOKS], id="half of them use none"),
        pytest.param([LOOKS, STOPPED], id="one of two uses none"),
        pytest.param([LOOKS, LOOKS, STOPPED, PodActivity(cpu=0.0002)], id="others use next to none"),
        pytest.param([LOOKS, LOOKS, PodActivity(cpu=1e-6), LOOKS], id="one has looked once"),
        pytest.param([None] * 4, id="agents of an older healthd"),
    ],
)
def test_where_none_stands_out_none_is_suspected(activities: list[PodActivity | None]) -> None:
    location = voted(*activities)

    assert location.suspects == ()
    assert location.reason


def test_a_rank_of_which_nothing_is_known_is_no_suspect_and_hides_none() -> None:
    assert suspected(POLLS, None, SLEEPS, POLLS, POLLS) == ["train-2 on node-2"]


def test_a_pod_that_does_nothing_has_no_state_of_its_processes() -> None:
    evidence = pod_evidence(quiet(SLEEPS), 0, "train-0", "node-0")

    assert evidence is not None
    assert evidence.process is None
    assert waits_for_io(quiet(SLEEPS)) is False


def test_a_frozen_pod_that_seems_to_wait_for_a_disk_is_frozen() -> None:
    evidence = pod_evidence(quiet(PodActivity(frozen=True, io_wait=1.0)), 0, "train-0", "node-0")

    assert evidence is not None
    assert evidence.process is not None
    assert evidence.process.state is TaskState.FROZEN


def test_of_four_thousand_ranks_the_one_that_differs_is_named() -> None:
    activities = [PodActivity(cpu=8 + number % 7 / 100) for number in range(4096)]
    activities[1234] = SLEEPS

    assert suspected(*activities) == ["train-1234 on node-1234"]


def a_process(function: str, state: str = "sleeping", syscall: str = "futex", **fields: Any) -> PodProcess:
    """One whose main thread is in *function*."""
    stack = [PodFrame(function=function, file=FILES.get(function, "train.py"), line=7)]
    return PodProcess(state=state, name="python", pid=4711, syscall=syscall, stack=stack, **fields)


FILES = {"all_reduce": "torch/distributed/distributed_c10d.py"}
REDUCES = PodActivity(process=a_process("all_reduce"))
LOADS = PodActivity(process=a_process("load_rows", syscall="read"))


def test_a_stack_outside_of_the_collective_names_the_rank_also_where_all_sleep() -> None:
    (suspect,) = voted(REDUCES, REDUCES, LOADS, REDUCES).suspects

    assert (suspect.pod, suspect.strength) == ("train-2", 2)
    assert [witness.words for witness in suspect.witnesses] == [
        "is in load_rows (train.py:7); 3 ranks wait in a collective or for the GPU",
        "is sleeping in read; 3 ranks are sleeping in futex",
    ]


def test_the_line_of_the_program_is_published_and_named() -> None:
    frames = (Frame("readinto", "python3.11/socket.py", 706), Frame("fetch", "job/train.py", 88, is_own=True))
    loads = PodActivity(process=published_process([RankEvidence(0, stack=Stack(frames))]))
    (suspect,) = voted(REDUCES, REDUCES, loads, REDUCES).suspects

    assert "in readinto (python3.11/socket.py:706), called by fetch (job/train.py:88);" in suspect.witnesses[0].words


def test_a_stopped_process_names_the_rank() -> None:
    (suspect,) = voted(
        REDUCES, PodActivity(process=PodProcess(state="stopped", name="python", pid=9)), REDUCES
    ).suspects

    assert suspect.witnesses[0].words == "process 9 (python) is stopped"


@given(text=st.text(max_size=64))
def test_text_of_a_program_is_escaped(text: str) -> None:
    process = PodProcess(state=text, name=text, syscall=text, stack=[PodFrame(function=text, file=text)])
    location = voted(REDUCES, REDUCES, PodActivity(process=process), REDUCES)

    assert all(witness.words.isprintable() for suspect in location.suspects for witness in suspect.witnesses)


def connected(own: int, *peers: int, lost: int = 0, **fields: Any) -> PodNetwork:
    """Pod *own* has connections with *peers*. *lost*: what it sent to each was not acknowledged."""
    connections = [PodConnection(local=at(own, peer), remote=at(peer, own), unacknowledged=lost) for peer in peers]
    return PodNetwork(connections=connections, **fields)


def at(own: int, peer: int) -> str:
    return f"10.0.0.{own}:{30000 + peer}"


def with_network(network: PodNetwork | None) -> PodActivity:
    return PodActivity(process=PodProcess(state="sleeping", name="python", pid=9, syscall="recvfrom", network=network))


def test_the_pod_to_which_others_send_in_vain_is_suspected() -> None:
    pods = [connected(0, 1, 3), connected(1, 0, 2), connected(2, 1, 3), connected(3, 2, 0)]
    pods[1] = connected(1, 0, 2, lost=8116)
    (suspect,) = voted(*map(with_network, pods)).suspects

    assert (suspect.pod, suspect.node) == ("train-1", "node-1")
    assert suspect.witnesses[0].words == "its connections with 2 of 2 peers are lost: what is sent is not acknowledged"


def test_of_two_pods_that_cannot_talk_none_is_suspected_and_both_are_in_the_reason() -> None:
    location = voted(with_network(connected(0, 1, lost=8116)), with_network(connected(1, 0)))

    assert location.suspects == ()
    assert "the connection of train-0 and train-1 is lost" in location.reason


def test_beside_a_component_of_an_older_version_lost_connections_suspect_none() -> None:
    pods = [connected(0, 1, 3), connected(1, 0, 2, lost=8116), connected(2, 1, 3), None]

    assert suspected(*map(with_network, pods)) == []


def test_of_two_pods_the_one_that_does_something_else_while_the_other_waits_for_it_is_suspected() -> None:
    waits = PodConnection(local=at(0, 1), remote=at(1, 0), awaited=True)

    assert suspected(with_network(PodNetwork(connections=[waits])), with_network(connected(1, 0, elsewhere=True))) == [
        "train-1 on node-1"
    ]


def of_pod(rank: int, function: str, state: TaskState = TaskState.SLEEPING) -> RankEvidence:
    """One rank of a pod with several."""
    stack = Stack((Frame(function, FILES.get(function, "train.py"), 7),))
    return RankEvidence(rank, process=ProcessEvidence(state, "python", 100 + rank), stack=stack)


def test_of_the_ranks_of_a_pod_the_one_that_holds_up_the_others_is_published() -> None:
    ranks = [of_pod(rank, "load_rows" if rank == 5 else "all_reduce") for rank in range(8)]
    process = published_process(ranks)

    assert process is not None
    assert (process.pid, process.stack[0].function) == (105, "load_rows")


def test_where_all_ranks_of_a_pod_do_the_same_the_first_is_published() -> None:
    process = published_process([of_pod(rank, "all_reduce") for rank in range(8)])

    assert process is not None
    assert (process.pid, process.state) == (100, "sleeping")


def test_a_pod_without_ranks_publishes_none() -> None:
    assert published_process([]) is None


def test_what_is_published_fits_the_definition_whatever_the_program_calls_its_functions() -> None:
    frames = tuple(Frame("f" * 64, "p" * 64, 2**31 - 1) for _ in range(24))
    process = published_process([RankEvidence(0, stack=Stack(frames))])

    assert msgspec.json.decode(msgspec.json.encode(process), type=PodProcess) == process


def with_connections(rank: int, *connections: Connection, elsewhere: bool = False) -> RankEvidence:
    return replace(of_pod(rank, "all_reduce"), network=NetworkEvidence(connections, elsewhere))


def test_the_connections_of_all_ranks_of_a_pod_are_published_and_what_the_first_one_awaits() -> None:
    first = Connection("10.0.0.5:1", "10.0.0.6:1", is_awaited=True)
    second = Connection("10.0.0.5:2", "10.0.0.7:1", unacknowledged=2**40, is_awaited=True)
    process = published_process([with_connections(0, first, elsewhere=True), with_connections(1, second)])

    assert process is not None
    assert process.network == PodNetwork(
        connections=[
            PodConnection(local="10.0.0.5:2", remote="10.0.0.7:1", unacknowledged=2**31 - 1),
            PodConnection(local="10.0.0.5:1", remote="10.0.0.6:1", awaited=True),
        ],
        elsewhere=True,
    )


def test_connections_within_a_pod_are_not_published() -> None:
    process = published_process([with_connections(0, Connection("127.0.0.1:1", "127.0.0.1:2", 9))])

    assert process is not None
    assert process.network == PodNetwork()


def test_where_those_of_one_rank_are_not_known_no_connections_are_published() -> None:
    process = published_process([with_connections(0), of_pod(1, "all_reduce")])

    assert process is not None
    assert process.network is None


def test_of_very_many_connections_the_lost_ones_and_one_to_each_other_address_are_published() -> None:
    lost = [Connection(f"10.0.0.5:{port}", "10.0.1.1:1", 9) for port in range(60)]
    fine = [Connection(f"10.0.0.5:{100 + n}", f"10.0.2.{n % 20}:{n}") for n in range(60)]
    process = published_process([with_connections(0, *lost), with_connections(1, *fine)])

    assert process is not None
    assert process.network is not None
    published = process.network.connections
    assert sum(1 for each in published if each.unacknowledged) == 8
    assert len({each.remote.split(":")[0] for each in published if not each.unacknowledged}) == MOST_CONNECTIONS - 8
    assert msgspec.json.decode(msgspec.json.encode(process), type=PodProcess) == process
