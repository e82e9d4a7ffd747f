"""
What an agent publishes of a quiet pod, as evidence for the vote, and the other way round. Pure.

A control group shows less than `/proc`: whether its containers are frozen or wait for I/O, and what they use. States of
processes and stacks come from the component `hang-evidence`, where a site has it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from healthd.core.api.health import (
    MOST_CONNECTIONS,
    MOST_FRAMES,
    PodConnection,
    PodFrame,
    PodNetwork,
    PodProcess,
    PodRhythm,
)
from healthd.core.hang.suspects.evidence import (
    Activity,
    Connection,
    Frame,
    NetworkEvidence,
    ProcessEvidence,
    RankEvidence,
    Stack,
    TaskState,
    bounded,
)
from healthd.core.hang.suspects.links import address_of, is_loopback
from healthd.core.hang.suspects.sockets import telling
from healthd.core.hang.suspects.vote import vote
from healthd.core.untrusted import LARGEST_NUMBER

IO_WAITS = 0.5
"""
Of the last ten seconds. A pod is quiet after ten seconds at the earliest, and the kernel's mean over ten seconds is
63 % by then where a process has waited for all of them.
"""
MOST_LOST = 8
"""Connections of a pod on which nothing is acknowledged, that are published."""
_IO_SCHEDULE = "io_schedule"
"""The kernel counts as waits for I/O those in this function."""


def pod_evidence(rhythm: PodRhythm, rank: int, pod: str, node: str) -> RankEvidence | None:
    """What *rhythm*, of a quiet pod, says of *rank*. None: it is of an older agent, which looked at nothing."""
    seen = rhythm.activity
    if seen is None:
        return None
    known = RankEvidence(rank, pod, node, process=_process(rhythm), activity=Activity(cpu=seen.cpu, io=seen.io))
    if seen.process is None:
        return known
    return replace(known, stack=_stack(seen.process), network=_network(seen.process))


def waits_for_io(rhythm: PodRhythm) -> bool:
    """Whether a process of the pod waits for a disk or a file system."""
    return rhythm.activity is not None and (rhythm.activity.io_wait or 0.0) >= IO_WAITS


def is_stopped(rhythm: PodRhythm) -> bool:
    """Whether its process is, as the component `hang-evidence` says."""
    process = rhythm.activity.process if rhythm.activity is not None else None
    return process is not None and _state(process) is TaskState.STOPPED


def published_process(ranks: Sequence[RankEvidence]) -> PodProcess | None:
    """
    The one of *ranks*, the ranks of one pod, that is to be published: the one that holds up the others, else the first.

    None: there are none.
    """
    if not ranks:
        return None
    suspects = vote(ranks).suspects
    chosen = next((each for each in ranks if suspects and each.rank == suspects[0].rank), ranks[0])
    process = chosen.process or ProcessEvidence(TaskState.UNKNOWN)
    frames = chosen.stack.frames[:MOST_FRAMES] if chosen.stack is not None else ()
    return PodProcess(
        network=_published_network(ranks, chosen),
        state=str(process.state),
        name=process.name,
        pid=process.pid,
        syscall=process.syscall,
        wchan=process.wchan,
        processes=process.processes,
        stack=[PodFrame(function=each.function, file=each.file, line=each.line, own=each.is_own) for each in frames],
        thread_waits=chosen.stack is not None and chosen.stack.thread_waits,
    )


def _published_network(ranks: Sequence[RankEvidence], chosen: RankEvidence) -> PodNetwork | None:
    """
    The connections of all *ranks*: a pod that cannot be reached is not always seen by the rank that is published. What
    is awaited, and whether anything is, is that of *chosen*. None: of one of them they are not known.
    """
    networks = [each.network for each in ranks if each.network is not None]
    if chosen.network is None or len(networks) < len(ranks):
        return None
    others = (
        replace(each, is_awaited=False)
        for network in networks
        if network is not chosen.network
        for each in network.connections
    )
    kept = _some([*chosen.network.connections, *others])
    return PodNetwork(connections=[_published(each) for each in kept], elsewhere=chosen.network.is_elsewhere)


def _some(connections: Iterable[Connection]) -> Iterator[Connection]:
    """Those that are lost, and of the others one to each address: what matters of them is with whom they are."""
    remote = [each for each in connections if not is_loopback(each.local)]
    ordered = telling(remote, len(remote))
    lost = [each for each in ordered if each.unacknowledged][:MOST_LOST]
    yield from lost
    to_each = {address_of(each.remote): each for each in reversed(ordered) if not each.unacknowledged}
    yield from telling(to_each.values(), MOST_CONNECTIONS - len(lost))


def _published(connection: Connection) -> PodConnection:
    return PodConnection(
        local=connection.local,
        remote=connection.remote,
        unacknowledged=min(connection.unacknowledged, LARGEST_NUMBER),
        awaited=connection.is_awaited,
    )


def _network(process: PodProcess) -> NetworkEvidence | None:
    if process.network is None:
        return None
    connections = (
        Connection(bounded(each.local), bounded(each.remote), each.unacknowledged, each.awaited)
        for each in process.network.connections
    )
    return NetworkEvidence(tuple(connections), process.network.elsewhere)


def _process(rhythm: PodRhythm) -> ProcessEvidence | None:
    """Only what tells a pod from others. None: nothing does."""
    seen = rhythm.activity
    if seen is not None and seen.frozen:
        return ProcessEvidence(TaskState.FROZEN)
    if seen is not None and seen.process is not None and (state := _state(seen.process)) is not TaskState.UNKNOWN:
        known = seen.process
        name, syscall, wchan = map(bounded, (known.name, known.syscall, known.wchan))
        return ProcessEvidence(state, name, known.pid, syscall, wchan, known.processes)
    return ProcessEvidence(TaskState.UNINTERRUPTIBLE, wchan=_IO_SCHEDULE) if waits_for_io(rhythm) else None


def _state(process: PodProcess) -> TaskState:
    return TaskState(process.state) if process.state in set(TaskState) else TaskState.UNKNOWN


def _stack(process: PodProcess) -> Stack | None:
    """Names come from the program of a user."""
    frames = tuple(Frame(bounded(each.function), bounded(each.file), each.line, each.own) for each in process.stack)
    return Stack(frames, process.thread_waits) if frames else None
