"""The Job of Volcano: stopped by zeros, at no cost to its retries. `test_described_kinds` has what all kinds share."""

from __future__ import annotations

from typing import Any

import pytest

from healthd.cluster.embedded import EmbeddedCluster
from healthd.cluster.port import Conflict
from healthd.core.api import CustomObject
from healthd.core.recovery.gang import Root
from healthd.core.recovery.members import index_of
from healthd.gangs import ADAPTERS
from tests.gangs.builders import A_STEP, a_hint, an_empty_cluster
from tests.gangs.described import a_member, adapter_of, an_object, made_by, now, read, reports, says_stopped, stored

KIND = "VolcanoJob"
VOLCANO = "volcano.sh/"
RESTARTING = {"state": {"phase": "Restarting"}, "running": None, "version": 4}


@pytest.fixture
def cluster() -> EmbeddedCluster:
    """An empty cluster in memory."""
    return an_empty_cluster()


async def stopped(cluster: EmbeddedCluster, status: dict[str, Any] | None = None) -> Root:
    """healthd has stopped a gang, and Volcano says *status*; by default, that it has stopped."""
    made = await stored(cluster, KIND)
    await adapter_of(KIND).stop(cluster, read(KIND, made), "train-1")
    return read(KIND, await reports(cluster, await now(cluster, KIND), status or says_stopped(KIND)))


def numbers(obj: CustomObject) -> list[Any]:
    """Those of its tasks, and its own."""
    tasks = [(task["replicas"], task.get("minAvailable")) for task in obj.spec["tasks"]]
    return [*tasks, obj.spec["minAvailable"]]


async def test_zeros_stop_it_and_it_starts_with_the_numbers_that_it_had(cluster: EmbeddedCluster) -> None:
    root = await stopped(cluster)
    off = await now(cluster, KIND)
    await adapter_of(KIND).start(cluster, root, a_hint({}, A_STEP))
    on = await now(cluster, KIND)

    assert (root.suspended, root.stopped, root.world, root.seats) == (
        True,
        True,
        4,
        ("master-0", "worker-0", "worker-1", "worker-2"),
    )
    assert (numbers(off), off.metadata.annotations["healthd.dev/replicas"]) == ([(0, 0), (0, None), 0], "1,3,1,,4")
    assert (numbers(on), on.metadata.annotations.get("healthd.dev/replicas")) == ([(1, 1), (3, None), 4], None)
    assert [task["template"] for task in on.spec["tasks"]] == [task["template"] for task in off.spec["tasks"]]


async def test_its_version_is_raised_before_the_stop_so_that_no_policy_takes_that_for_a_failure(
    cluster: EmbeddedCluster,
) -> None:
    await stopped(cluster)

    assert (await now(cluster, KIND)).status["version"] == 3


async def test_a_stop_that_saw_an_older_gang_changes_nothing_at_all(cluster: EmbeddedCluster) -> None:
    made = await stored(cluster, KIND)
    await reports(cluster, made, {"running": 3})

    with pytest.raises(Conflict):
        await adapter_of(KIND).stop(cluster, read(KIND, made), "train-1")

    assert (await now(cluster, KIND)).status["version"] == 2
    assert not read(KIND, await now(cluster, KIND)).suspended


async def test_a_stop_that_was_cut_off_after_the_version_is_done_again(cluster: EmbeddedCluster) -> None:
    made = await stored(cluster, KIND)
    await reports(cluster, made, {"version": 3})

    await adapter_of(KIND).stop(cluster, read(KIND, await now(cluster, KIND)), "train-1")

    found = await now(cluster, KIND)
    assert (read(KIND, found).stopped_by, found.status["version"]) == ("train-1", 4)


@pytest.mark.parametrize(
    ("status", "has_stopped"),
    [
        ({"minAvailable": None, "running": 1}, False),
        ({"minAvailable": None, "running": None, "pending": 1}, False),
        (RESTARTING, True),
        ({**RESTARTING, "running": 2}, False),
        ({"state": {"phase": "Pending"}, "running": None}, False),
    ],
)
async def test_it_has_stopped_when_volcano_makes_no_more_pods(
    cluster: EmbeddedCluster, status: dict[str, Any], has_stopped: bool
) -> None:
    """A restart of its own that comes between never gets to the new numbers, and ends where it is."""
    assert (await stopped(cluster, status)).stopped is has_stopped


async def test_a_gang_that_asks_for_no_minimum_has_begun_when_it_runs() -> None:
    obj = an_object(KIND, spec={"minAvailable": 0}, status={"minAvailable": None})

    assert read(KIND, obj).has_begun


@pytest.mark.parametrize("phase", ["Aborting", "Aborted"])
def test_what_its_user_aborts_is_suspended_by_its_user(phase: str) -> None:
    root = read(KIND, an_object(KIND, status={"state": {"phase": phase}}))

    assert (root.suspended, root.stopped_by) == (True, "")


@pytest.mark.parametrize("note", ["4", "1,3,1,,4,5", "1,3,1,,x", ",,,,", "1,-3,1,,4"])
def test_a_note_that_does_not_fit_the_tasks_makes_it_invalid(note: str) -> None:
    tasks = [{"name": "master", "replicas": 0, "minAvailable": 0}, {"name": "worker", "replicas": 0}]
    notes = {"healthd.dev/restart": "enabled", "healthd.dev/stopped-by": "r", "healthd.dev/replicas": note}

    root = read(KIND, an_object(KIND, spec={"tasks": tasks, "minAvailable": 0}, annotations=notes))

    assert any(why.startswith("healthd.dev/replicas: ") for why in root.invalid)


def test_a_pod_is_known_by_its_task_and_number_and_is_of_no_other_job_of_that_name() -> None:
    labels = {f"{VOLCANO}job-name": "train", f"{VOLCANO}task-spec": "worker", f"{VOLCANO}task-index": "2"}
    obj = an_object(KIND)
    pod = a_member(made_by("Job", uid="uid-9"), "train-worker-2", labels=labels)

    assert adapter_of(KIND).root_name(pod) == "train"
    assert index_of(pod, read(KIND, obj)) == "worker-2"
    assert adapter_of(KIND).root_uid(pod) == "uid-9"
    assert ADAPTERS["Job"].root_uid(pod) == "uid-9"
