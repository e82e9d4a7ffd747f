"""What `healthd explain` shows of the ranks of a gang that hangs now in a cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import msgspec
import pytest

from healthd.cli.quiet_ranks import lines_of_ranks, read_quiet_ranks
from healthd.cli.target.target import Target
from healthd.cluster.embedded import EmbeddedCluster
from healthd.core.api import (
    ANNOTATION_RESTART,
    ANNOTATION_SILENCE,
    Job,
    NodeHealth,
    NodeHealthStatus,
    PodStatus,
)
from healthd.core.api.health import MemberState, PodActivity, PodFrame, PodProcess, PodRhythm
from healthd.core.hang.silence import Silence, SilentMember
from healthd.core.recovery.gang import Root
from healthd.gangs.job import LABEL_JOB_NAME, JobAdapter
from tests.builders import a_job, a_node, a_nodehealth, a_pod
from tests.fakes import START, ManualClock, counting_uids

NOW = START + timedelta(minutes=2)
FRAME = PodFrame(function="all_reduce", file="torch/distributed.py", line=9)
WAITS = PodProcess(state="sleeping", name="python", pid=7, stack=[FRAME])
STOPPED = PodProcess(state="stopped", name="python\x1b[2J", pid=8)


class HungGang:
    """A Job of three ranks on three nodes, and what their agents publish."""

    def __init__(self) -> None:
        self.cluster = EmbeddedCluster.open(None, clock=ManualClock(NOW), new_uid=counting_uids())
        self.target = Target(self.cluster, None, "the cluster", None)

    async def hang(self, *, ended: bool = False, states: tuple[MemberState, ...] = (MemberState.SILENT,) * 3) -> Root:
        """All ranks fell quiet a minute ago; rank 1 is stopped."""
        known = tuple(SilentMember(rank=f"{n}", state=MemberState.SILENT, last_active=START) for n in range(3))
        silence = Silence(
            since=START, seen_at=START, allowed=12, period=2, members=known, ended_at=NOW if ended else None
        )
        notes = {ANNOTATION_RESTART: "enabled", ANNOTATION_SILENCE: msgspec.json.encode(silence).decode()}
        job = await self.cluster.create(a_job("train", annotations=notes))
        for number, state in enumerate(states):
            await self._add(job, number, state, STOPPED if number == 1 else WAITS)
        root = JobAdapter().read(job)
        assert root is not None
        return root

    async def _add(self, job: Job, number: int, state: MemberState, process: PodProcess) -> None:
        name = f"node-{number}"
        status = PodStatus(phase="Running")
        known = a_pod(
            f"train-{number}", node=name, index=number, owner=job, labels={LABEL_JOB_NAME: "train"}, status=status
        )
        pod = await self.cluster.create(known)
        rhythm = PodRhythm(uid=pod.metadata.uid, state=state, since=NOW, activity=PodActivity(process=process))
        await self.cluster.create(a_node(name))
        await self.cluster.create(a_nodehealth(name))
        report = msgspec.to_builtins(NodeHealthStatus(rhythms=[rhythm], seen_at=NOW, boot_id="boot-1"))
        await self.cluster.patch(NodeHealth, name, {"status": report}, subresource="status")


@pytest.fixture
async def gang() -> AsyncIterator[HungGang]:
    gang = HungGang()
    yield gang
    gang.cluster.close()


async def test_the_table_names_each_rank_the_suspect_first_and_prints_no_escapes(gang: HungGang) -> None:
    ranks = await read_quiet_ranks(await gang.hang(), gang.target, NOW)
    lines = list(lines_of_ranks(ranks, 120))

    assert lines[0].startswith("rank 1 (pod train-1, node node-1) holds up the others")
    table = lines[lines.index("") + 1 :]
    assert [line.split()[0] for line in table] == ["RANKS", "1", "0,2"]
    assert "all_reduce" in table[2]
    assert "\x1b" not in "\n".join(lines)


async def test_there_is_none_once_the_gang_works_again(gang: HungGang) -> None:
    assert await read_quiet_ranks(await gang.hang(ended=True), gang.target, NOW) == []
    assert list(lines_of_ranks([], 120)) == []


async def test_there_is_none_while_a_rank_works(gang: HungGang) -> None:
    states = (MemberState.SILENT, MemberState.WORKING, MemberState.SILENT)

    assert await read_quiet_ranks(await gang.hang(states=states), gang.target, NOW) == []
