"""Where the checkpoints of a gang are looked up, and what their names are for its pods."""

from __future__ import annotations

import asyncio
import dataclasses
import sys
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from healthd.controller.checkpoints.mounted import CheckpointLocation, FileCheckpoints, place_of
from healthd.controller.ports import CheckpointAnswer
from healthd.core.recovery.gang import ClaimMount, GangOptions, Root
from tests.checkpoints.builders import safetensors_bytes, write_files
from tests.core.gangs import a_root

pytestmark = pytest.mark.slow


def saving_to(location: str, *mounts: ClaimMount, namespace: str = "default") -> Root:
    """A gang that names *location*, and whose pods have these *mounts*."""
    root = a_root(options=GangOptions(restart=True, checkpoint=location), mounts=mounts)
    return dataclasses.replace(root, ref=msgspec.structs.replace(root.ref, namespace=namespace))


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
    root = saving_to("pvc://data/runs/llama", ClaimMount(claim="data", path="/mnt", sub_path="runs"))

    answer = await FileCheckpoints(volumes).latest(root)

    assert answer.found is not None
    assert (answer.found.path, answer.found.step) == ("/mnt/llama/step_7.safetensors", 7)


async def test_a_torn_checkpoint_on_a_claim_is_named_in_the_same_way(volumes: Path) -> None:
    (volumes / "default" / "data" / "runs" / "llama" / "step_8.safetensors").write_bytes(b"torn")
    root = saving_to("pvc://data/runs/llama", ClaimMount(claim="data", path="/mnt"))

    answer = await FileCheckpoints(volumes).latest(root)

    assert [refused.path for refused in answer.rejected] == ["/mnt/runs/llama/step_8.safetensors"]


def test_where_the_pods_do_not_report_their_mounts_the_name_stays_a_url(volumes: Path) -> None:
    place = place_of(saving_to("pvc://data/runs/llama"), volumes)

    assert isinstance(place, CheckpointLocation)
    assert place.seen_there(f"{place.here}/step_7") == "pvc://data/runs/llama/step_7"


@pytest.mark.parametrize("sub_path", ["other", "runs/llam"])
def test_a_mount_of_another_folder_of_the_claim_does_not_count(volumes: Path, sub_path: str) -> None:
    root = saving_to("pvc://data/runs/llama", ClaimMount(claim="data", path="/mnt", sub_path=sub_path))

    place = place_of(root, volumes)

    assert isinstance(place, CheckpointLocation)
    assert place.there == "pvc://data/runs/llama"


@pytest.mark.parametrize(
    "location", ["pvc://data/../../other/secret", "pvc://../etc", "pvc:///runs", "pvc://data%2f../x"]
)
def test_no_one_gets_out_of_his_own_claims(volumes: Path, location: str) -> None:
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


SLOW = (sys.executable, "-c", "import time; time.sleep(600)")
"""A program that says nothing, like one that reads from a store that hangs."""


async def test_a_verification_that_takes_too_long_is_ended_and_refused_with_the_reason(tmp_path: Path) -> None:
    files, root = FileCheckpoints(within=timedelta(milliseconds=50), program=SLOW), saving_to(str(tmp_path))

    answer = await files.latest(root)

    assert answer.found is None
    assert [refused.path for refused in answer.rejected] == [str(tmp_path)]
    assert "has not answered within" in answer.rejected[0].reason


async def test_what_ends_its_process_is_a_reason_and_the_next_read_has_another_process(tmp_path: Path) -> None:
    dies = (sys.executable, "-c", "raise SystemExit(9)")
    files, root = FileCheckpoints(program=dies), saving_to(str(tmp_path))

    for _ in range(2):
        assert "ended with status 9" in (await files.latest(root)).rejected[0].reason
    with pytest.raises(OSError, match="ended with status 9"):
        await files.newest_step(root)


@pytest.mark.parametrize("said", ["nothing of sense", '{"size":-1}', '{"free":' + "1" * 99_000 + "}", ""])
async def test_what_is_no_report_is_refused(tmp_path: Path, said: str) -> None:
    talks = (sys.executable, "-c", f"import sys, time; sys.stdout.write({said!r} + chr(10))")
    files, root = FileCheckpoints(program=talks), saving_to(str(tmp_path))

    assert "cannot be written down" in (await files.latest(root)).rejected[0].reason


async def test_the_event_loop_goes_on_while_something_hostile_is_read(tmp_path: Path) -> None:
    hogs = (sys.executable, "-c", "while True: pass")
    files, root = FileCheckpoints(within=timedelta(seconds=1), program=hogs), saving_to(str(tmp_path))
    turns = 0

    read = asyncio.create_task(files.latest(root))
    while not read.done():
        await asyncio.sleep(0)
        turns += 1

    assert turns > 1000
    assert "has not answered" in (await read).rejected[0].reason


async def test_a_checkpoint_whose_name_does_not_print_is_refused_in_letters_that_do(tmp_path: Path) -> None:
    (tmp_path / "step_7\x1b[31m").mkdir()
    (tmp_path / "step_6\udcff.safetensors").write_bytes(safetensors_bytes({"weights": 64}))
    (tmp_path / "step_5.safetensors").write_bytes(safetensors_bytes({"weights": 64}))

    answer = await FileCheckpoints().latest(saving_to(str(tmp_path)))

    assert answer.found is not None
    assert answer.found.step == 5
    assert all(refused.path.isprintable() for refused in answer.rejected)


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


async def test_a_path_that_is_not_allowed_is_not_read_and_the_reason_says_what_to_do(elsewhere: Path) -> None:
    checkpoints, root = FileCheckpoints(elsewhere.parent / "claims", []), saving_to(f"file://{elsewhere}")

    answer = await checkpoints.latest(root)

    assert answer.found is None
    assert "checkpoints.allowed" in answer.rejected[0].reason
    assert answer.rejected[0].unread
    assert await checkpoints.newest_step(root) is None


@pytest.mark.parametrize("where", ["{own}", "{own}/../own", "{parent}/./own/"])
async def test_a_path_below_an_allowed_folder_is_read(elsewhere: Path, where: str) -> None:
    root = saving_to("file://" + where.format(own=elsewhere, parent=elsewhere.parent))
    checkpoints = FileCheckpoints(elsewhere.parent / "claims", [f"{elsewhere} for default"])

    assert await checkpoints.newest_step(root) == 7


@pytest.mark.parametrize("where", ["{allowed}/../own", "{allowed}/link", "{allowed}-too"])
async def test_neither_dots_nor_links_nor_a_like_name_lead_out_of_an_allowed_folder(
    elsewhere: Path, where: str
) -> None:
    allowed = elsewhere.parent / "allowed"
    allowed.mkdir()
    (allowed / "link").symlink_to(elsewhere)
    (elsewhere.parent / "allowed-too").symlink_to(elsewhere)
    checkpoints = FileCheckpoints(elsewhere.parent / "claims", [f"{allowed} for default"])

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


async def test_a_secret_is_not_reported_in_a_reason(volumes: Path, elsewhere: Path) -> None:
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


OTHERS = [
    "file://{volumes}/default/data",
    "file://{volumes}",
    "file://{volumes}/team-b/../default/data",
    "file://{volumes}//default//data/",
    "file://{volumes}/team-b/%2e%2e/default/data",
    "file://{volumes}/%64efault/data",
    "{volumes}/default/data",
    "file://{volumes}/team-b/mine/link",
    "pvc://mine/link",
    "pvc://mine/../../default/data",
    "pvc://mine/%2e%2e/%2e%2e/default/data",
    "pvc://data",
    "pvc://../default/data",
]
"""How a gang of `team-b` might name the claim `data` of the namespace `default`."""


@pytest.mark.parametrize("where", OTHERS)
async def test_a_gang_reads_nothing_of_another_namespace(volumes: Path, where: str) -> None:
    (volumes / "default" / "data" / "step_7.safetensors").write_bytes(A_CHECKPOINT)
    (volumes / "team-b" / "mine").mkdir(parents=True)
    (volumes / "team-b" / "mine" / "link").symlink_to(volumes / "default" / "data")
    checkpoints, root = FileCheckpoints(volumes, []), saving_to(where.format(volumes=volumes), namespace="team-b")

    answer, report = await checkpoints.latest(root), await checkpoints.report(root)

    assert answer.found is None
    assert "step_7" not in str(answer.rejected)
    assert await checkpoints.newest_step(root) is None
    assert "step_7" not in str(report)


async def test_below_the_volumes_a_gang_may_name_the_folder_of_its_own_namespace(volumes: Path) -> None:
    (volumes / "default" / "data" / "step_7.safetensors").write_bytes(A_CHECKPOINT)

    assert await FileCheckpoints(volumes, []).newest_step(saving_to(f"file://{volumes}/default/data")) == 7


@pytest.mark.parametrize(("rows", "step"), [("team-b", None), ("default", 7), ("team-b, default", 7), ("*", 7)])
async def test_an_allowed_folder_is_for_the_namespaces_that_it_names(
    elsewhere: Path, rows: str, step: int | None
) -> None:
    checkpoints = FileCheckpoints(elsewhere.parent / "claims", [f"{elsewhere} for {rows}"])

    assert await checkpoints.newest_step(saving_to(f"file://{elsewhere}")) == step


async def test_an_allowed_bucket_is_for_the_namespaces_that_it_names() -> None:
    checkpoints = FileCheckpoints(allowed=["s3://team-a/runs for team-a"])

    assert await checkpoints.reads(saving_to("s3://team-a/runs", namespace="team-a"))
    assert not await checkpoints.reads(saving_to("s3://team-a/runs"))


async def test_without_bounds_everything_may_be_read(elsewhere: Path) -> None:
    assert await FileCheckpoints().newest_step(saving_to(f"file://{elsewhere}")) == 7


@pytest.mark.parametrize("location", ["s3://team-b/run", "s3://team-a/runs-too", "gs://team-a/runs", "s3://team-a"])
async def test_a_bucket_that_is_not_allowed_is_not_asked(location: str) -> None:
    answer = await FileCheckpoints(allowed=["s3://team-a/runs/ for default"]).latest(saving_to(location))

    assert answer.found is None
    assert "outside of what the controller may read (s3://team-a/runs; see" in answer.rejected[0].reason


@pytest.mark.parametrize("location", ["s3://team-a/runs", "s3://team-a/runs/llama"])
async def test_a_place_in_an_allowed_bucket_is_read(location: str) -> None:
    assert await FileCheckpoints(allowed=["s3://team-a/runs for default"]).reads(saving_to(location))


async def test_a_report_has_the_names_of_the_pods_and_the_size(volumes: Path) -> None:
    folder = volumes / "default" / "data" / "runs" / "llama"
    (folder / "step_7.safetensors").write_bytes(safetensors_bytes({"weights": 64}))
    (folder / "step_8.safetensors").write_bytes(b"torn")
    root = saving_to("pvc://data/runs/llama", ClaimMount(claim="data", path="/mnt"))

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
