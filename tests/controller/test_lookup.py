"""Where the checkpoints of a gang are looked up, and what their names are for its pods."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from pathlib import Path

import msgspec
import pytest

from healthd.controller.lookup import FileCheckpoints, Place, place_of
from healthd.controller.ports import CheckpointAnswer
from healthd.core.gang import GangOptions, Mount, Root
from tests.checkpoints.builders import safetensors_bytes, write_files
from tests.core.gangs import a_root


def saving_to(location: str, *mounts: Mount) -> Root:
    """A gang that names *location*, and whose pods have these *mounts*."""
    return a_root(options=GangOptions(restart=True, checkpoint=location), mounts=mounts)


@pytest.mark.parametrize("location", ["hdfs://host/run", "s3://bucket/../run", "pvc://claim/run"])
async def test_a_store_that_healthd_cannot_read_is_not_taken_for_an_empty_one(location: str) -> None:
    answer = await FileCheckpoints().latest(saving_to(location))

    assert answer.found is None
    assert [refused.path for refused in answer.rejected] == [location]


async def test_a_gang_that_names_no_store_has_saved_nothing() -> None:
    assert await FileCheckpoints().latest(saving_to("")) == CheckpointAnswer(None, [])


async def test_a_directory_that_is_not_there_yet_is_empty(tmp_path: Path) -> None:
    assert await FileCheckpoints().latest(saving_to(f"file://{tmp_path}/later")) == CheckpointAnswer(None, [])


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


@pytest.mark.parametrize("location", ["file://runs/llama", "s3://[bucket", "ftp://server/runs", "pvc:///runs"])
async def test_a_place_that_cannot_be_meant_is_refused_and_never_guessed(volumes: Path, location: str) -> None:
    files, root = FileCheckpoints(volumes), saving_to(location)

    answer, report = await files.latest(root), await files.report(root)

    assert [refused.path for refused in answer.rejected] == [location]
    assert report is not None
    assert [refused.path for refused in report.rejected] == [location]


async def test_a_claim_that_is_not_mounted_here_is_no_worry_of_this_process(volumes: Path) -> None:
    assert await FileCheckpoints(volumes).report(saving_to("pvc://elsewhere/runs")) is None


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


async def test_a_gang_does_not_wait_for_the_look_of_another_at_the_same_place() -> None:
    checkpoints, slow, begun = FileCheckpoints(), threading.Event(), threading.Event()

    def take_time() -> None:
        begun.set()
        slow.wait()

    first = asyncio.create_task(checkpoints._once("/nfs", take_time, who="llama"))
    await asyncio.to_thread(begun.wait)

    assert await checkpoints._once("/nfs", lambda: 7, who="phi") == 7
    slow.set()
    await first


async def test_gangs_that_save_to_one_place_do_not_wait_for_each_other(tmp_path: Path) -> None:
    files, root = FileCheckpoints(), saving_to(str(tmp_path))
    others = [dataclasses.replace(root, ref=msgspec.structs.replace(root.ref, uid=f"uid-{n}")) for n in range(8)]

    reports = await asyncio.gather(*(files.report(each) for each in others))

    assert [report.rejected for report in reports if report] == [[]] * 8


A_CHECKPOINT = safetensors_bytes({"weights": 64})


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A folder of the controller's own, with something that looks like a checkpoint."""
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "step_7.safetensors").write_bytes(A_CHECKPOINT)
    return folder


async def test_a_path_that_is_not_allowed_is_not_looked_at_and_the_reason_says_what_to_do(elsewhere: Path) -> None:
    checkpoints, root = FileCheckpoints(elsewhere.parent / "claims", []), saving_to(f"file://{elsewhere}")

    answer = await checkpoints.latest(root)

    assert answer.found is None
    assert "checkpoints.allowed" in answer.rejected[0].reason
    assert await checkpoints.newest_step(root) is None


@pytest.mark.parametrize("where", ["{own}", "{own}/../own", "{parent}/./own/"])
async def test_a_path_below_an_allowed_folder_is_looked_at(elsewhere: Path, where: str) -> None:
    root = saving_to("file://" + where.format(own=elsewhere, parent=elsewhere.parent))
    checkpoints = FileCheckpoints(elsewhere.parent / "claims", [str(elsewhere)])

    assert await checkpoints.newest_step(root) == 7


@pytest.mark.parametrize("where", ["{allowed}/../own", "{allowed}/link", "{allowed}-too"])
async def test_neither_dots_nor_links_nor_a_like_name_lead_out_of_an_allowed_folder(
    elsewhere: Path, where: str
) -> None:
    allowed = elsewhere.parent / "allowed"
    allowed.mkdir()
    (allowed / "link").symlink_to(elsewhere)
    (elsewhere.parent / "allowed-too").symlink_to(elsewhere)
    checkpoints = FileCheckpoints(elsewhere.parent / "claims", [str(allowed)])

    answer = await checkpoints.latest(saving_to("file://" + where.format(allowed=allowed)))

    assert answer.found is None
    assert "outside" in answer.rejected[0].reason


async def test_a_link_on_a_claim_does_not_lead_out_of_it(volumes: Path, elsewhere: Path) -> None:
    (volumes / "default" / "data" / "link").symlink_to(elsewhere)

    answer = await FileCheckpoints(volumes, []).latest(saving_to("pvc://data/link"))

    assert answer.found is None
    assert "a link leads to" in answer.rejected[0].reason


@pytest.mark.parametrize("name", ["step_9", "step_9/model.safetensors", "step_9.safetensors"])
async def test_a_link_below_the_root_does_not_lead_out_of_a_claim_either(
    volumes: Path, elsewhere: Path, name: str
) -> None:
    link = volumes / "default" / "data" / "runs" / name
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(elsewhere if name == "step_9" else elsewhere / "step_7.safetensors")

    answer = await FileCheckpoints(volumes, []).latest(saving_to("pvc://data/runs"))

    assert answer.found is None
    assert answer.rejected[0].reason.endswith("outside of what may be read")


async def test_a_secret_is_not_told_in_a_reason(volumes: Path, elsewhere: Path) -> None:
    (elsewhere / "token").write_text("s3cret")
    step = volumes / "default" / "data" / "runs" / "checkpoint-9"
    write_files(step, "global_step9/mp_rank_00_model_states.pt", state={})
    (step / "latest").symlink_to(elsewhere / "token")

    answer = await FileCheckpoints(volumes, []).latest(saving_to("pvc://data/runs"))

    assert answer.rejected[0].reason.startswith("latest: a link leads to")
    assert "s3cret" not in answer.rejected[0].reason


async def test_a_link_that_stays_in_its_claim_is_followed(volumes: Path) -> None:
    runs = volumes / "default" / "data" / "runs"
    (volumes / "default" / "data" / "blob").write_bytes(A_CHECKPOINT)
    (runs / "step_9.safetensors").symlink_to("../blob")

    answer = await FileCheckpoints(volumes, []).latest(saving_to("pvc://data/runs"))

    assert answer.found is not None


async def test_without_bounds_everything_may_be_looked_at(elsewhere: Path) -> None:
    assert await FileCheckpoints().newest_step(saving_to(f"file://{elsewhere}")) == 7


@pytest.mark.parametrize("location", ["s3://team-b/run", "s3://team-a/runs-too", "gs://team-a/runs", "s3://team-a"])
async def test_a_bucket_that_is_not_allowed_is_not_asked(location: str) -> None:
    answer = await FileCheckpoints(allowed=["s3://team-a/runs/"]).latest(saving_to(location))

    assert answer.found is None
    assert "outside of what the controller may read (s3://team-a/runs; see" in answer.rejected[0].reason


@pytest.mark.parametrize("location", ["s3://team-a/runs", "s3://team-a/runs/llama"])
def test_a_place_in_an_allowed_bucket_is_read(location: str) -> None:
    assert FileCheckpoints(allowed=["s3://team-a/runs"]).reads(saving_to(location))


async def test_a_report_has_the_names_of_the_pods_and_the_size(volumes: Path) -> None:
    folder = volumes / "default" / "data" / "runs" / "llama"
    (folder / "step_7.safetensors").write_bytes(safetensors_bytes({"weights": 64}))
    (folder / "step_8.safetensors").write_bytes(b"torn")
    root = saving_to("pvc://data/runs/llama", Mount(claim="data", path="/mnt"))

    report = await FileCheckpoints(volumes).report(root)

    assert report is not None
    assert report.found is not None
    assert report.found.path == "/mnt/runs/llama/step_7.safetensors"
    assert [refused.path for refused in report.rejected] == ["/mnt/runs/llama/step_8.safetensors"]
    assert report.size == (folder / "step_7.safetensors").stat().st_size


async def test_a_place_out_of_bounds_is_reported_as_refused(tmp_path: Path, volumes: Path) -> None:
    report = await FileCheckpoints(volumes, allowed=[]).report(saving_to(f"file://{tmp_path.parent}"))

    assert report is not None
    assert "outside of what the controller may read" in report.rejected[0].reason


async def test_of_a_claim_that_is_not_mounted_there_is_no_report(tmp_path: Path) -> None:
    assert await FileCheckpoints(tmp_path).report(saving_to("pvc://data/runs")) is None
