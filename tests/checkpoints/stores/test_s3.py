"""Checkpoints in a bucket of a real S3 server are judged as on a disk, and what only buckets do is survived."""

from __future__ import annotations

import os
import pickle
import zipfile
from pathlib import Path

import pytest

from healthd.checkpoints.latest import Cache, Candidate, Checkpoint, VerifyLevel, latest, newest_step, verify
from healthd.checkpoints.pointers import misled
from healthd.checkpoints.stores.urls import locate
from healthd.checkpoints.tree import survey
from healthd.controller.checkpoints.mounted import FileCheckpoints
from healthd.core.recovery.gang import GangOptions
from tests.checkpoints.builders import REAL, a_dcp_step, a_sharded_step, safetensors_bytes, shard_name, torch_zip_bytes
from tests.checkpoints.stores.buckets import Bucket, impatient
from tests.core.gangs import a_root
from tests.lab.s3 import SLOW_DOWN, Answer, Faulty

pytestmark = pytest.mark.lab


def refusal_of(bucket: Bucket, name: str, *, level: VerifyLevel = VerifyLevel.FULL) -> str:
    outcome = verify(Candidate(path=bucket.at(name), step=10), level=level)
    return "" if isinstance(outcome, Checkpoint) else outcome.reason


@pytest.mark.parametrize("real", sorted(path.name for path in REAL.iterdir()))
def test_what_the_libraries_wrote_is_judged_as_on_a_disk(bucket: Bucket, real: str) -> None:
    bucket.upload(REAL / real)

    here = verify(Candidate(path=REAL / real, step=10))
    there = verify(Candidate(path=bucket.at(real), step=10))

    assert type(there) is type(here)
    if isinstance(here, Checkpoint) and isinstance(there, Checkpoint):
        assert there.format == here.format
    elif not isinstance(here, Checkpoint) and not isinstance(there, Checkpoint):
        assert there.reason == here.reason


def test_the_newest_that_holds_is_found_and_named_by_its_url(bucket: Bucket, tmp_path: Path) -> None:
    bucket.upload(a_sharded_step(tmp_path, 9))
    torn = a_sharded_step(tmp_path, 10)
    os.truncate(torn / shard_name(0, 4), 200)
    bucket.upload(torn)

    answer = latest(bucket.at())

    assert answer.found is not None
    assert (answer.found.path, answer.found.step) == (f"{bucket.url}/step-000009", 9)
    assert [(refused.path, "torn write" in refused.reason) for refused in answer.rejected] == [
        (f"{bucket.url}/step-000010", True)
    ]


def test_a_step_is_not_mixed_up_with_another_whose_name_begins_so(bucket: Bucket, tmp_path: Path) -> None:
    bucket.upload(a_dcp_step(tmp_path, 1))
    bucket.upload(a_dcp_step(tmp_path, 10))
    bucket.delete("step-10/.metadata")

    assert not refusal_of(bucket, "step-1")
    assert "missing" in refusal_of(bucket, "step-10")


def test_files_directly_in_the_bucket_are_steps_too(bucket: Bucket) -> None:
    bucket.put("model-5.pt", torch_zip_bytes())
    bucket.put("model-6.pt", torch_zip_bytes()[:-1])

    answer = latest(bucket.at())

    assert answer.found is not None
    assert answer.found.path == f"{bucket.url}/model-5.pt"


def test_a_folder_that_is_not_there_yet_is_empty(bucket: Bucket) -> None:
    assert latest(bucket.at("later")) == latest(Path("/nowhere/at/all"))
    assert newest_step(bucket.at("later")) is None


def test_a_bucket_that_is_not_there_is_no_empty_one(bucket: Bucket) -> None:
    answer = latest(locate("s3://no-such-bucket/run", bucket.environment))

    assert answer.found is None
    assert "NoSuchBucket" in answer.rejected[0].reason


def test_wrong_credentials_are_reported_and_not_shown(bucket: Bucket) -> None:
    answer = latest(impatient(bucket, bucket.environment, secret_access_key="swordfish"))

    assert answer.found is None
    assert "SignatureDoesNotMatch" in answer.rejected[0].reason
    assert "swordfish" not in answer.rejected[0].reason


@pytest.mark.slow
def test_more_objects_than_one_page_lists_are_all_seen(bucket: Bucket, tmp_path: Path) -> None:
    bucket.upload(a_sharded_step(tmp_path, 10, ranks=1100))

    assert not refusal_of(bucket, "step-000010", level=VerifyLevel.QUICK)

    bucket.delete(f"step-000010/{shard_name(1050, 1100)}")

    assert "01050-of-01100.safetensors: missing" in refusal_of(bucket, "step-000010", level=VerifyLevel.QUICK)


def test_an_upload_in_flight_is_not_there_yet(bucket: Bucket, tmp_path: Path) -> None:
    bucket.upload(a_sharded_step(tmp_path, 10))
    bucket.delete(f"step-000010/{shard_name(3, 4)}")
    in_flight = bucket.begin_upload(f"step-000010/{shard_name(3, 4)}", size=6 << 20)

    assert "00003-of-00004.safetensors: missing" in refusal_of(bucket, "step-000010")
    assert in_flight


def a_listing(*keys: str) -> Answer:
    """A page as S3 writes it, where all objects but those that end in a slash have one byte."""
    contents = "".join(
        f"<Contents><Key>{key}</Key><LastModified>2026-11-21T10:00:00Z</LastModified>"
        f"<Size>{0 if key.endswith('/') else 1}</Size></Contents>"
        for key in keys
    )
    return Answer(200, f"<ListBucketResult>{contents}</ListBucketResult>".encode())


def test_an_empty_object_that_stands_for_a_folder_is_no_file(bucket: Bucket, faulty: Faulty) -> None:
    faulty.rule = lambda method, path: a_listing("run/", "run/shards/", "run/shards/0", "run/meta")

    tree = survey(locate("s3://training/run", faulty.environment))

    assert sorted(tree.entries) == ["meta", "shards/0"]


def test_names_may_hold_whatever_a_key_may(bucket: Bucket) -> None:
    bucket.put("step-10/a b#c%20d+é?.safetensors", safetensors_bytes({"w": 10}))

    assert not refusal_of(bucket, "step-10")


def test_pointers_of_the_writer_are_read_in_a_bucket_too(bucket: Bucket) -> None:
    bucket.put("latest", b"step-20")

    assert misled(bucket.at(), f"{bucket.url}/step-10") == [
        "latest leads to 'step-20': a loader that goes by it loads that one"
    ]


def through(faulty: Faulty, bucket: Bucket) -> Bucket:
    """The same folder, asked for by way of the proxy."""
    return Bucket(faulty.environment, bucket.folder)


def test_a_store_that_asks_to_slow_down_is_asked_again(bucket: Bucket, faulty: Faulty, tmp_path: Path) -> None:
    bucket.upload(a_sharded_step(tmp_path, 10))
    refused: dict[str, Answer] = {}
    faulty.rule = lambda method, path: None if path in refused else refused.setdefault(path, SLOW_DOWN)

    assert not refusal_of(through(faulty, bucket), "step-000010")
    assert len(refused) >= 6


def test_a_store_that_never_answers_is_reported_and_nothing_is_taken(bucket: Bucket, faulty: Faulty) -> None:
    faulty.rule = lambda method, path: SLOW_DOWN

    answer = latest(impatient(bucket, faulty.environment))

    assert answer.found is None
    assert "SlowDown: Please reduce your request rate" in answer.rejected[0].reason


def test_a_shard_that_is_overwritten_while_it_is_read_is_reported(
    bucket: Bucket, faulty: Faulty, tmp_path: Path
) -> None:
    bucket.upload(a_sharded_step(tmp_path, 10))
    shard = f"step-000010/{shard_name(2, 4)}"

    def overwrite(method: str, path: str) -> None:
        if method == "GET" and path.endswith(shard_name(2, 4)):
            bucket.put(shard, safetensors_bytes({"layer.2": 100}, fill=b"\2"))

    faulty.rule = overwrite

    assert refusal_of(through(faulty, bucket), "step-000010") == f"{shard_name(2, 4)}: changed while being read"


def test_a_shard_that_is_overwritten_after_it_was_read_is_reported(
    bucket: Bucket, faulty: Faulty, tmp_path: Path
) -> None:
    bucket.upload(a_sharded_step(tmp_path, 10))
    listings = 0

    def overwrite(method: str, path: str) -> None:
        nonlocal listings
        listings += "list-type" in path
        if listings == 2:
            bucket.put(f"step-000010/{shard_name(2, 4)}", safetensors_bytes({"layer.2": 100}, fill=b"\2"))

    faulty.rule = overwrite

    assert refusal_of(through(faulty, bucket), "step-000010") == f"{shard_name(2, 4)}: changed while being read"


def test_retention_that_deletes_while_we_read_is_survived(bucket: Bucket, faulty: Faulty, tmp_path: Path) -> None:
    bucket.upload(a_sharded_step(tmp_path, 10))

    def delete(method: str, path: str) -> None:
        if method == "GET" and path.endswith(shard_name(0, 4)):
            bucket.delete(f"step-000010/{shard_name(0, 4)}")

    faulty.rule = delete

    assert f"{shard_name(0, 4)}: missing" in refusal_of(through(faulty, bucket), "step-000010")


def test_a_shard_with_a_short_header_costs_one_request(bucket: Bucket, faulty: Faulty, tmp_path: Path) -> None:
    bucket.upload(a_sharded_step(tmp_path, 10, ranks=20))

    assert not refusal_of(through(faulty, bucket), "step-000010")
    assert sum(".safetensors" in path and "json" not in path for path in faulty.asked) == 20


def test_an_archive_of_many_small_tensors_costs_few_requests(bucket: Bucket, faulty: Faulty, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "model.pt", "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({}, protocol=2))
        for tensor in range(600):
            archive.writestr(f"archive/data/{tensor}", bytes(2000))
    bucket.put("model.pt", (tmp_path / "model.pt").read_bytes())

    assert not refusal_of(through(faulty, bucket), "model.pt")
    assert sum(path.endswith("model.pt") for path in faulty.asked) < 15


def test_what_was_proven_about_the_same_objects_is_not_read_again(
    bucket: Bucket, faulty: Faulty, tmp_path: Path
) -> None:
    bucket.upload(a_sharded_step(tmp_path, 10))
    cache = Cache()
    place = through(faulty, bucket).at()
    latest(place, cache=cache)
    faulty.asked.clear()

    assert latest(place, cache=cache).found is not None
    assert not [path for path in faulty.asked if ".safetensors" in path]


A_FILE = safetensors_bytes({"w": 4})


@pytest.mark.parametrize("tag", ["", "<ETag>0x1FDD9DEF3F03530</ETag>"], ids=["no tag", "a tag without quotes"])
def test_a_list_may_report_less_or_more_of_an_object_than_the_answer_does(
    bucket: Bucket, faulty: Faulty, tag: str
) -> None:
    """As Azure leaves out the quotes of tags in its lists, and GCS has parts of a second in them."""
    listed = (
        f"<ListBucketResult><Contents><Key>run/0.safetensors</Key><LastModified>2026-11-21T10:00:00.123Z</LastModified>"
        f"{tag}<Size>{len(A_FILE)}</Size></Contents></ListBucketResult>"
    )
    headers = (
        ("Last-Modified", "Sat, 21 Nov 2026 10:00:00 GMT"),
        ("Content-Range", f"bytes 0-{len(A_FILE) - 1}/{len(A_FILE)}"),
        ("ETag", '"0x1FDD9DEF3F03530"'),
    )
    faulty.rule = lambda method, path: (
        Answer(200, listed.encode()) if "list-type" in path else Answer(206, A_FILE, headers)
    )

    outcome = verify(Candidate(path=locate("s3://training/run", faulty.environment), step=1))

    assert isinstance(outcome, Checkpoint), outcome


async def test_the_controller_finds_what_a_gang_saves_in_a_bucket(bucket: Bucket, tmp_path: Path) -> None:
    bucket.upload(a_sharded_step(tmp_path, 10))
    root = a_root(options=GangOptions(restart=True, checkpoint=bucket.url))
    checkpoints = FileCheckpoints(allowed=["s3://training for default"], environment=bucket.environment)

    answer = await checkpoints.latest(root)

    assert answer.found is not None
    assert (answer.found.path, answer.found.step) == (f"{bucket.url}/step-000010", 10)
    assert await checkpoints.newest_step(root) == 10
