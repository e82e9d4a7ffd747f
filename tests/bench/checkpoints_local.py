"""
What verification adds to bare reading: `python -m tests.bench.checkpoints_local [--files N] [--megabytes N]`.

Quick: `latest` on a step of many small files against a list of the same files, a stat of each and one read of its first
bytes, all from the page cache: in as many threads as healthd may have, and in one alone. Full: against reading the same
large files from end to end with 1 MB reads in as many threads, both with the files put out of the page cache first.
Each case runs in a process of its own, for its peak memory. Rounds of all take turns, so that other work on the machine
hits all.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from healthd.checkpoints.latest import VerifyLevel, latest
from healthd.checkpoints.stores.local import LOCAL
from tests.bench._figures import machine, peak_memory, spread
from tests.checkpoints.builders import a_dcp_step, a_sharded_step, write_files

HEALTHD, PARALLEL, ALONE = "healthd", "bare", "bare, one thread"
HEADER = 16_384
CHUNK = 1 << 20
QUICK = {
    "safetensors": lambda root, files: a_sharded_step(root, 10, ranks=files - 1),
    "torch_dcp": lambda root, files: a_dcp_step(root, 10, ranks=files - 1),
    "torch_zip": lambda root, files: write_files(root / "step-10", *(f"rank-{n}.pt" for n in range(files))),
    "deepspeed": lambda root, files: a_deepspeed_step(root / "global_step10", files // 2),
}


def main() -> None:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--megabytes", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--at", type=Path, help="where the files are written (default: the temporary directory)")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.case:
        print(json.dumps(run_case(args.case, args)))
        return
    words = [f"--files={args.files}", f"--megabytes={args.megabytes}", f"--rounds={args.rounds}"]
    words += [f"--at={args.at}"] if args.at else []
    print(
        json.dumps(
            {
                "files": args.files,
                "megabytes": args.megabytes,
                "clock": {"start": "call of latest()", "end": "its answer", "unit": "s"},
                "cases": {case: in_its_own_process(case, words) for case in (*QUICK, "full")},
                "machine": machine(),
            },
            indent=2,
        )
    )


def in_its_own_process(case: str, words: Sequence[str]) -> Any:
    """What the case printed."""
    command = [sys.executable, "-m", "tests.bench.checkpoints_local", *words, f"--case={case}"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def run_case(case: str, args: argparse.Namespace) -> dict[str, Any]:
    """Seconds of healthd and of bare reading, and how many times as long the first took (by medians)."""
    with tempfile.TemporaryDirectory(dir=args.at) as scratch:
        root = Path(scratch)
        if case == "full":
            step = write_large(root, args.megabytes)
            runs = {HEALTHD: lambda: verified(root, VerifyLevel.FULL), PARALLEL: lambda: read_all(step)}
            samples = in_turns(runs, args.rounds, lambda: forget(step))
        else:
            step = QUICK[case](root, args.files)
            runs = {
                HEALTHD: lambda: verified(root, VerifyLevel.QUICK),
                PARALLEL: lambda: read_headers(step, LOCAL.at_once),
                ALONE: lambda: read_headers(step, 1),
            }
            samples = in_turns(runs, args.rounds)
    figures = {
        name: {"taken": spread([taken for taken, _ in each], 3), "CPU": spread([cpu for _, cpu in each], 3)}
        for name, each in samples.items()
    }
    times_as_much = {
        f"times {name}, {which}": round(figures[HEALTHD][which]["p50"] / figures[name][which]["p50"], 2)
        for name in figures
        if name != HEALTHD
        for which in ("taken", "CPU")
    }
    return {**figures, **times_as_much, "peak memory, MB": peak_memory()}


def in_turns(
    runs: Mapping[str, Callable[[], None]], rounds: int, before: Callable[[], None] = lambda: None
) -> dict[str, list[tuple[float, float]]]:
    """
    Seconds that each round of all took, and of the processor's time, which other work on the machine changes less.

    A first round does not count: a virtual disk may have a cache of its own.
    """
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
    for count in range(rounds + 1):
        for name, run in runs.items():
            before()
            start, start_cpu = time.perf_counter(), time.process_time()
            run()
            if count:
                found[name].append((time.perf_counter() - start, time.process_time() - start_cpu))
    return found


def verified(root: Path, level: VerifyLevel) -> None:
    """One call, which has to find the checkpoint."""
    answer = latest(root, level=level)
    if answer.found is None:
        raise SystemExit(f"the checkpoint was refused: {answer.rejected}")


def read_headers(step: Path, threads: int) -> None:
    """A stat and one read of each file."""

    def read(file: os.DirEntry[str]) -> None:
        file.stat()
        fd = os.open(file.path, os.O_RDONLY)
        os.pread(fd, HEADER, 0)
        os.close(fd)

    in_parallel(read, list(os.scandir(step)), threads)


def read_all(step: Path) -> None:
    """Every byte of each file."""

    def read(file: os.DirEntry[str]) -> None:
        buffer = bytearray(CHUNK)
        fd = os.open(file.path, os.O_RDONLY)
        while os.readv(fd, [buffer]):
            pass
        os.close(fd)

    in_parallel(read, list(os.scandir(step)), LOCAL.at_once)


def in_parallel(read: Callable[[os.DirEntry[str]], None], files: list[os.DirEntry[str]], threads: int) -> None:
    """Each thread with shares of the files."""

    def read_share(share: list[os.DirEntry[str]]) -> None:
        for file in share:
            read(file)

    size = -(-len(files) // (threads * 4))
    shares = [files[at : at + size] for at in range(0, len(files), size)]
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(read_share, shares))


def a_deepspeed_step(folder: Path, ranks: int) -> Path:
    """Two files of each rank, as ZeRO 3 writes them."""
    zero = {"zero_optimization": {"stage": 3}}
    state = {"dp_world_size": ranks, "mp_world_size": 1, "global_steps": 10, "ds_config": zero}
    names = [f"zero_pp_rank_{rank}_mp_rank_00_{what}_states.pt" for rank in range(ranks) for what in ("model", "optim")]
    return write_files(folder, *names, state=state)


def write_large(root: Path, megabytes: int) -> Path:
    """A step of eight files of `torch.save` as large together, on the disk; in pieces, to hold no file in memory."""
    step = root / "step-10"
    step.mkdir()
    piece = os.urandom(CHUNK)
    for rank in range(8):
        with (step / f"rank-{rank}.pt").open("wb") as file:
            with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
                archive.writestr("archive/data.pkl", pickle.dumps({}, protocol=2))
                with archive.open("archive/data/0", "w", force_zip64=True) as member:
                    for _ in range(megabytes // 8):
                        member.write(piece)
            file.flush()
            os.fsync(file.fileno())
    return step


def forget(step: Path) -> None:
    """Put the files out of the page cache."""
    for path in step.iterdir():
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


if __name__ == "__main__":
    main()
