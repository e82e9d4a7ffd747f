"""The gang that a command is about."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from healthd.cli.errors import UserError
from healthd.cli.target.gang import gang_named, gang_of
from healthd.cluster.embedded import EmbeddedCluster
from tests.builders import a_job, gang_ref
from tests.fakes import ManualClock, counting_uids
from tests.gangs.builders import a_statefulset

OURS = {"healthd.dev/restart": "enabled"}


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    """An empty cluster in memory."""
    with EmbeddedCluster.open(None, clock=ManualClock(), new_uid=counting_uids()) as embedded:
        yield embedded


@pytest.mark.parametrize("said", ["train", "job/train", "jobs/train", "Job/train"])
async def test_a_gang_is_found_however_it_is_spelled(cluster: EmbeddedCluster, said: str) -> None:
    await cluster.create(a_job("train", annotations=OURS))
    await cluster.create(a_job("other", annotations=OURS))

    found = await gang_named(cluster, said, None)

    assert found is not None
    assert found.ref.name == "train"


@pytest.mark.parametrize(("said", "namespace"), [("sts/train", None), ("nothing", None), ("train", "elsewhere")])
async def test_what_is_not_there_is_not_found(cluster: EmbeddedCluster, said: str, namespace: str | None) -> None:
    await cluster.create(a_job("train", annotations=OURS))

    assert await gang_named(cluster, said, namespace) is None


async def test_a_workload_without_annotations_of_healthd_is_no_gang(cluster: EmbeddedCluster) -> None:
    await cluster.create(a_job("train"))

    assert await gang_named(cluster, "job/train", None) is None


async def test_a_name_of_several_gangs_is_refused_with_all_of_them(cluster: EmbeddedCluster) -> None:
    await cluster.create(a_job("train", namespace="research", annotations=OURS))
    await cluster.create(a_statefulset("train", annotations=OURS))

    with pytest.raises(UserError, match="could be job/train in research, statefulset/train in default"):
        await gang_named(cluster, "train", None)


async def test_a_gang_made_anew_under_the_name_is_not_the_one_of_the_recovery(cluster: EmbeddedCluster) -> None:
    ref = gang_ref(await cluster.create(a_job("train", annotations=OURS)))
    earlier = msgspec.structs.replace(ref, uid="of-an-earlier-one")

    assert await gang_of(cluster, earlier) is None
    assert (await gang_of(cluster, ref)) is not None
