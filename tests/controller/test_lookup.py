"""Where the checkpoints of a gang are looked up, and what their names are for its pods."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from healthd.controller.lookup import FileCheckpoints, Place, place_of
from healthd.core.gang import GangOptions, Mount, Root
from tests.checkpoints.builders import safetensors_bytes
from tests.core.gangs import a_root


def saving_to(location: str, *mounts: Mount) -> Root:
    """A gang that names *location*, and whose pods have these *mounts*."""
    return a_root(options=GangOptions(restart=True, checkpoint=location), mounts=mounts)


@pytest.mark.parametrize("location", ["s3://bucket/run", "pvc://claim/run"])
async def test_a_store_that_healthd_cannot_read_is_not_taken_for_an_empty_one(location: str) -> None:
    answer = await FileCheckpoints().latest(saving_to(location))

    assert answer.found is None
    assert [refused.path for refused in answer.rejected] == [location]


async def test_a_gang_that_names_no_store_has_saved_nothing() -> None:
    assert await FileCheckpoints().latest(saving_to("")) == (None, [])


async def test_a_directory_that_is_not_there_yet_is_empty(tmp_path: Path) -> None:
    assert await FileCheckpoints().latest(saving_to(f"file://{tmp_path}/later")) == (None, [])


@pytest.fixture
def volumes(tmp_path: Path) -> Path:
    """The claim `data` of namespace `default`, as it is mounted in the controller's pod."""
    (tmp_path / "default" / "data" / "runs" / "llama").mkdir(parents=True)
    return tmp_path


async def test_a_checkpoint_on_a_claim_is_named_as_the_pods_of_the_gang_see_it(volumes: Path) -> None:
    whole = volumes / "default" / "data" / "runs" / "llama" / "step_7.safetensors"
    whole.write_bytes(safetensors_bytes({"weights": 64}))
    root = saving_to("pvc://data/runs/llama", Mount(claim="data", path="/mnt", sub_path="runs"))

    answer = await FileCheckpoints(volumes).latest(root)

    assert answer.found is not None
    assert (answer.found.path, answer.found.step) == ("/mnt/llama/step_7.safetensors", 7)


async def test_a_torn_checkpoint_on_a_claim_is_named_in_the_same_way(volumes: Path) -> None:
    (volumes / "default" / "data" / "runs" / "llama" / "step_8.safetensors").write_bytes(b"torn")
    root = saving_to("pvc://data/runs/llama", Mount(claim="data", path="/mnt"))

    answer = await FileCheckpoints(volumes).latest(root)

    assert [refused.path for refused in answer.rejected] == ["/mnt/runs/llama/step_8.safetensors"]


def test_where_the_pods_do_not_tell_their_mounts_the_name_stays_a_url(volumes: Path) -> None:
    place = place_of(saving_to("pvc://data/runs/llama"), volumes)

    assert isinstance(place, Place)
    assert place.seen_there(f"{place.here}/step_7") == "pvc://data/runs/llama/step_7"


@pytest.mark.parametrize("sub_path", ["other", "runs/llam"])
def test_a_mount_of_another_folder_of_the_claim_does_not_count(volumes: Path, sub_path: str) -> None:
    root = saving_to("pvc://data/runs/llama", Mount(claim="data", path="/mnt", sub_path=sub_path))

    place = place_of(root, volumes)

    assert isinstance(place, Place)
    assert place.there == "pvc://data/runs/llama"


@pytest.mark.parametrize(
    "location", ["pvc://data/../../other/secret", "pvc://../etc", "pvc:///runs", "pvc://data%2f../x"]
)
def test_nobody_gets_out_of_his_own_claims(volumes: Path, location: str) -> None:
    assert isinstance(place_of(saving_to(location), volumes), str)


async def test_a_store_that_hangs_keeps_one_thread_however_often_it_is_asked(tmp_path: Path) -> None:
    checkpoints, hanging, begun = FileCheckpoints(), threading.Event(), threading.Event()

    def hang() -> None:
        begun.set()
        hanging.wait()

    first = asyncio.create_task(checkpoints._once("/nfs", hang))
    await asyncio.to_thread(begun.wait)

    with pytest.raises(TimeoutError, match="has not answered an earlier look"):
        await checkpoints._once("/nfs", hang)
    hanging.set()
    await first
