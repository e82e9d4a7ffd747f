"""
Interrupt real writers in the middle of a save, and compare healthd's word with what the library then loads.

`python -m tests.frameworks.interrupted NAME... [--times N] [--seed S] [--kinds kill,full,...]`, run by hand where the
frameworks and healthd's own dependencies are installed. A writer (`WRITERS` in `writers_torch` and `writers_arrays`)
saves some steps, each with other values, the way its framework does it. The kinds of interruption:

- `kill`: all processes of the writer end by SIGKILL at a random moment of a save; `rank`: one of them, the rest later
- `full`: the disk, a small tmpfs, has no room left at a random moment (needs root, is left out without)
- `swap`: a file of one step stands in another, for every pair of files of the same name
- `unnamed`: what the library renames into place at the end still has its temporary name
- `power`: files of the newest step end early or have pages of zeros, as after a loss of power when nothing was flushed

After each, every step is verified and loaded. Reported are those that healthd calls good and that the library does not
load, or loads with the values of another step; and the saves that healthd refuses though they load: work lost.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import logging
import os
import random
import shutil
from functools import partial
from pathlib import Path

from healthd.checkpoints.latest import VerifyLevel
from healthd.checkpoints.steps import find
from tests.frameworks.compare_with_loaders import why_it_fails
from tests.frameworks.interruptions import KINDS
from tests.frameworks.judging import load, why_refused
from tests.frameworks.saving import SCRATCH, Writer, fresh, import_noted, measure


def warm_up(writer: Writer) -> None:
    """Import here what a save and a load import late, so that it is done once, and not within what is measured."""
    root = fresh("warm")
    measure(writer, root)
    import_noted()
    for candidate in find(root / writer.folder):
        fails = why_it_fails(partial(load, writer, candidate), Path(str(candidate.path)))
        if fails or why_refused(candidate, VerifyLevel.FULL):
            print(
                f"UNDISTURBED: step {candidate.step}: {fails or why_refused(candidate, VerifyLevel.FULL)}", flush=True
            )
        import_noted()


def interrupt(name: str, writer: Writer, kinds: list[str], times: int, seed: int) -> None:
    """Every kind, and print what became of it."""
    for package in writer.packages:
        importlib.import_module(package)
    warm_up(writer)
    for kind in kinds:
        if (kind == "rank" and writer.ranks == 1) or (kind == "unnamed" and not writer.renames):
            continue
        if kind == "full" and os.geteuid():
            print(f"{name}: full: LEFT OUT, only root can mount a small disk")
            continue
        chance = random.Random(f"{seed} {name} {kind}")
        outcome = KINDS[kind](writer, times if kind == "kill" else -(-times // 2), chance, name)
        print(f"{name}: {kind}: {outcome.times} times, {outcome.inside} of them within a save (seed {seed})")
        for line, count in sorted(outcome.counts.items()):
            print(f"    {line}: {count}")
        for reason, count in outcome.lost.items():
            if count:
                print(f"    lost {count}: {reason}", flush=True)


def writers() -> dict[str, Writer]:
    """Of all modules that have some; of those whose packages are installed."""
    found: dict[str, Writer] = {}
    for module in ("tests.frameworks.writers_torch", "tests.frameworks.writers_arrays"):
        if importlib.util.find_spec(module):
            found |= importlib.import_module(module).WRITERS
    return {name: writer for name, writer in found.items() if all(map(_is_installed, writer.packages))}


def _is_installed(package: str) -> bool:
    return importlib.util.find_spec(package.partition(".")[0]) is not None


def main() -> None:
    """Read the command line and interrupt."""
    logging.disable(logging.CRITICAL)
    table = writers()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(table))
    parser.add_argument("--times", type=int, default=50)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--kinds", default=",".join(KINDS))
    arguments = parser.parse_args()
    if unknown := sorted(set(arguments.names) - set(table)):
        parser.error(f"no writer {', '.join(unknown)} here; there are {', '.join(table)}")
    try:
        for name in arguments.names:
            interrupt(name, table[name], arguments.kinds.split(","), arguments.times, arguments.seed)
    finally:
        shutil.rmtree(SCRATCH, ignore_errors=True)


if __name__ == "__main__":
    importlib.import_module("tests.frameworks.interrupted").main()  # under the name by which the writers know it
