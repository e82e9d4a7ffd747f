"""
How long a checkpoint takes in a bucket: `python -m tests.bench.checkpoints_s3 [--objects N] [--megabytes N]`.

The server is versitygw on this machine, so the clock has both its work and ours on the same cores, and no network. The
clock starts at the call of `latest` on the URL of a folder with one step, and stops when it answers. Quick: many small
objects; beside it the same objects are listed and their first bytes read by the bare client with as many requests at a
time. Full: a few large ones. Each round is a process of its own, for its peak memory, and those of both take turns.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import obstore

from healthd.checkpoints.latest import VerifyLevel, latest
from healthd.checkpoints.stores.objects import ObjectStore
from tests.bench._figures import machine, peak_memory, spread
from tests.bench.checkpoints_local import write_large
from tests.checkpoints.builders import a_sharded_step
from tests.checkpoints.stores.buckets import Bucket, client
from tests.lab.s3 import S3

HEADER = 16_384
QUICK, BARE, FULL = "listed and every header read, quick", "the same by the bare client", "large objects, full"
SMALL_ONES, LARGE_ONES = "small", "large"


def main() -> None:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--objects", type=int, default=10_000)
    parser.add_argument("--megabytes", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--case", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.case:
        print(json.dumps(run_case(args.case, os.environ)))
        return
    with tempfile.TemporaryDirectory() as scratch:
        server = S3(Path(scratch, "server"))
        server.start()
        Bucket(server.environment, SMALL_ONES).upload(a_sharded_step(Path(scratch), 10, ranks=args.objects - 1))
        Bucket(server.environment, LARGE_ONES).upload(write_large(Path(scratch), args.megabytes))
        print(json.dumps(measure(args, server.environment), indent=2))
        server.stop()


def measure(args: argparse.Namespace, environment: Mapping[str, str]) -> dict[str, object]:
    """The figures, each over all rounds."""
    samples: dict[str, list[dict[str, Any]]] = {QUICK: [], BARE: [], FULL: []}
    for _ in range(args.rounds):
        for case, found in samples.items():
            found.append(in_its_own_process(case, environment))
    return {
        "objects": args.objects,
        "megabytes": args.megabytes,
        "clock": {"start": "call of latest()", "end": "its answer", "unit": "s"},
        **{case: spread([each["seconds"] for each in found]) for case, found in samples.items()},
        "peak memory, MB": {case: max(each["peak"] for each in found) for case, found in samples.items()},
        "machine": machine(),
    }


def in_its_own_process(case: str, environment: Mapping[str, str]) -> Any:
    """What the case printed."""
    command = [sys.executable, "-m", "tests.bench.checkpoints_s3", f"--case={case}"]
    run = subprocess.run(command, env={**os.environ, **environment}, check=True, capture_output=True, text=True)
    return json.loads(run.stdout)


def run_case(case: str, environment: Mapping[str, str]) -> dict[str, float]:
    """Seconds of one round, and the most memory that this process had, in MB."""
    bucket = Bucket(environment, LARGE_ONES if case == FULL else SMALL_ONES)
    start = time.perf_counter()
    if case == BARE:
        read_headers(bucket)
    else:
        verified(bucket, VerifyLevel.FULL if case == FULL else VerifyLevel.QUICK)
    took = time.perf_counter() - start
    return {"seconds": took, "peak": peak_memory()}


def verified(bucket: Bucket, level: VerifyLevel) -> None:
    """One call, which has to find the checkpoint."""
    answer = latest(bucket.at(), level=level)
    if answer.found is None:
        raise SystemExit(f"the checkpoint was refused: {answer.rejected}")


def read_headers(bucket: Bucket) -> None:
    """List the objects, and read the first bytes of each."""
    s3 = client(bucket.environment)

    def read(key: str) -> None:
        obstore.get(s3, key, options={"range": (0, HEADER)}).bytes()

    keys = [meta["path"] for page in obstore.list(s3, prefix=bucket.folder, chunk_size=1000) for meta in page]
    with ThreadPoolExecutor(ObjectStore.at_once) as pool:
        for _ in pool.map(read, keys):
            pass


if __name__ == "__main__":
    main()
