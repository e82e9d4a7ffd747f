"""
How long it takes to verify a checkpoint of many files: `python -m tests.bench.checkpoints [--files N] [--rounds N]`.

The clock starts at the call of `latest` on a root with one step and stops when it answers; the files were just
written, so they come from the page cache. The cached case asks again with a `Cache` that saw the same files.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

from healthd.checkpoints.latest import Cache, VerifyLevel, latest
from tests.checkpoints.builders import a_dcp_step, a_sharded_step


def main() -> None:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=10)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        sharded, dcp = Path(scratch, "sharded"), Path(scratch, "dcp")
        a_sharded_step(sharded, 10, ranks=args.files - 1)
        a_dcp_step(dcp, 10, ranks=args.files - 1)
        cache = Cache()
        cases = {
            "safetensors": measure(sharded, args.rounds, VerifyLevel.FULL),
            "safetensors, proven before": measure(sharded, args.rounds, VerifyLevel.FULL, cache),
            "torch_dcp, quick": measure(dcp, args.rounds, VerifyLevel.QUICK),
            "torch_dcp, full": measure(dcp, args.rounds, VerifyLevel.FULL),
        }
    print(
        json.dumps(
            {
                "files": args.files,
                "cores": os.cpu_count(),
                "clock": {"start": "call of latest()", "end": "its answer", "unit": "s"},
                "cases": cases,
            },
            indent=2,
        )
    )


def measure(root: Path, rounds: int, level: VerifyLevel, cache: Cache | None = None) -> dict[str, float]:
    """Seconds that *rounds* calls took; with a cache one more call fills it first."""
    if cache is not None:
        latest(root, level=level, cache=cache)
    took = sorted(once(root, level, cache) for _ in range(rounds))
    return {"p50": took[len(took) // 2], "p99": took[min(len(took) - 1, int(len(took) * 0.99))], "max": took[-1]}


def once(root: Path, level: VerifyLevel, cache: Cache | None) -> float:
    """Seconds of one call, which has to find the checkpoint."""
    start = time.perf_counter()
    answer = latest(root, level=level, cache=cache)
    took = time.perf_counter() - start
    if answer.found is None:
        raise SystemExit(f"the checkpoint was refused: {answer.rejected}")
    return round(took, 4)


if __name__ == "__main__":
    main()
