"""
How long a checkpoint of many objects takes in a bucket: `python -m tests.bench.checkpoints_s3 [--objects N]`.

The server is versitygw on this machine, so the clock has both its work and ours on the same cores, and no network. The
clock starts at the call of `latest` on the URL of a folder with one step, and stops when it answers. Beside it the same
objects are listed and their first bytes read by the bare client with as many requests at a time.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import obstore

from healthd.checkpoints.latest import Level, latest
from healthd.checkpoints.stores.objects import ObjectStore
from tests.bench._figures import machine, spread
from tests.checkpoints.builders import a_sharded_step
from tests.checkpoints.stores.buckets import Bucket, client
from tests.lab.s3 import S3

HEADER = 16_384


def main() -> None:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--objects", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        server = S3(Path(scratch, "server"))
        server.start()
        bucket = Bucket(server.environment, "run")
        bucket.upload(a_sharded_step(Path(scratch), 10, ranks=args.objects - 1))
        print(json.dumps(measure(bucket, args.objects, args.rounds), indent=2))
        server.stop()


def measure(bucket: Bucket, objects: int, rounds: int) -> dict[str, object]:
    """The figures, each over *rounds* rounds."""
    return {
        "objects": objects,
        "clock": {"start": "call of latest()", "end": "its answer", "unit": "s"},
        "listed and every header read, quick": spread([verified(bucket, Level.QUICK) for _ in range(rounds)]),
        "the same by the bare client": spread([bare(bucket) for _ in range(rounds)]),
        "peak memory of this process, MB": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "machine": machine(),
    }


def verified(bucket: Bucket, level: Level) -> float:
    """Seconds of one call, which has to find the checkpoint."""
    start = time.perf_counter()
    answer = latest(bucket.at(), level=level)
    took = time.perf_counter() - start
    if answer.found is None:
        raise SystemExit(f"the checkpoint was refused: {answer.rejected}")
    return took


def bare(bucket: Bucket) -> float:
    """Seconds to list the objects and to read the first bytes of each."""
    s3 = client(bucket.environment)

    def read(key: str) -> None:
        obstore.get(s3, key, options={"range": (0, HEADER)}).bytes()

    start = time.perf_counter()
    keys = [meta["path"] for page in obstore.list(s3, prefix=bucket.folder, chunk_size=1000) for meta in page]
    with ThreadPoolExecutor(ObjectStore.at_once) as pool:
        for _ in pool.map(read, keys):
            pass
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
