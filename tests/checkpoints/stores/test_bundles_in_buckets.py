"""Files beside each other that are one checkpoint, in a bucket of a real S3 server."""

from __future__ import annotations

import pytest

from healthd.checkpoints.latest import latest
from healthd.checkpoints.steps import find
from tests.checkpoints.builders import REAL
from tests.checkpoints.stores.buckets import Bucket

pytestmark = pytest.mark.lab


def test_the_newest_of_tensorflow_is_found_by_what_its_names_begin_with(bucket: Bucket) -> None:
    bucket.upload(REAL / "tensorflow")

    answer = latest(bucket.at("tensorflow"))

    assert answer.found is not None
    assert (answer.found.path, answer.found.step) == (f"{bucket.url}/tensorflow/ckpt-20", 20)


def test_a_shard_that_is_not_there_is_missed(bucket: Bucket) -> None:
    bucket.upload(REAL / "tensorflow")
    bucket.delete("tensorflow/ckpt-20.data-00000-of-00001")

    answer = latest(bucket.at("tensorflow"))

    assert answer.found is not None
    assert answer.found.step == 10
    assert "ckpt-20.data-00000-of-00001: missing" in answer.rejected[0].reason


def test_a_bundle_can_be_named_itself(bucket: Bucket) -> None:
    bucket.upload(REAL / "tensorflow")

    assert [candidate.step for candidate in find(bucket.at("tensorflow/ckpt-20"))] == [20]
