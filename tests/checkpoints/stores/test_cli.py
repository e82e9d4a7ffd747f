"""`healthd checkpoints` on a bucket: the same words and exit codes as on a disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.checkpoints.builders import a_sharded_step, shard_name
from tests.checkpoints.stores.buckets import Bucket

pytestmark = pytest.mark.lab


def call(bucket: Bucket, *words: str) -> subprocess.CompletedProcess[str]:
    """As a job's start script calls it, with the credentials in its environment."""
    return subprocess.run(
        [sys.executable, "-m", "healthd.cli.main", "checkpoints", *words],
        env={**os.environ, **bucket.environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_latest_list_and_verify_know_a_bucket(bucket: Bucket, tmp_path: Path) -> None:
    bucket.upload(a_sharded_step(tmp_path, 10))
    torn = a_sharded_step(tmp_path, 20)
    (torn / shard_name(1, 4)).unlink()
    bucket.upload(torn)

    latest = call(bucket, "latest", bucket.url, "--json")
    listed = call(bucket, "list", bucket.url)
    verified = call(bucket, "verify", f"{bucket.url}/step-000020")

    answer = json.loads(latest.stdout)
    assert (answer["path"], answer["rejected"][0]["step"]) == (f"{bucket.url}/step-000010", 20)
    row = listed.stdout.splitlines()[2].split()
    assert (row[:2], row[-4:]) == (["10", "step-000010"], ["2.3", "kB", "yes", "(safetensors)"])
    assert [latest.returncode, listed.returncode, verified.returncode] == [0, 0, 3]


def test_an_empty_folder_of_a_bucket_is_reported(bucket: Bucket) -> None:
    answer = call(bucket, "latest", bucket.url)

    assert answer.returncode == 3
    assert f"no valid checkpoint at {bucket.url}: there is nothing of that name" in answer.stderr
