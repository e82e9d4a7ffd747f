"""The kinds of interruption: each lets a writer run some times, and judges what is left."""

from __future__ import annotations

import contextlib
import fnmatch
import itertools
import os
import random
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from healthd.checkpoints.latest import Candidate
from healthd.checkpoints.steps import find
from tests.frameworks.judging import Outcome, judge
from tests.frameworks.saving import GRACE, Gang, Writer, fresh, measure

LATE = 1.1
"""Kills come within this many times the length of an undisturbed save."""


PAGE = 4096


def by_kill(writer: Writer, times: int, chance: random.Random, name: str, *, one: bool = False) -> Outcome:
    """All processes, or with *one* a single rank, killed within a save."""
    took = measure(writer, fresh("measured"))
    again = measure(writer, fresh("measured"))
    outcome = Outcome()
    for _ in range(times):
        root = fresh("run")
        step = chance.choice(writer.steps)
        gang = Gang(writer, root)
        if gang.until(f"begin {step}"):
            time.sleep(chance.uniform(0, LATE * min(took[step], again[step])))
            if one:
                gang.kill(chance.randrange(writer.ranks))
                time.sleep(chance.uniform(0, GRACE))
            gang.kill()
            outcome.inside += not any(line.startswith(f"end {step} ") for line in gang.lines(1.0))
        gang.close()
        judge(writer, root, outcome, f"{name}: {'rank' if one else 'kill'} in step {step}")
    return outcome


def by_full_disk(writer: Writer, times: int, chance: random.Random, name: str) -> Outcome:
    """A disk that has room for a part of the run alone."""
    measured = fresh("measured")
    measure(writer, measured)
    needed = used(measured)
    each = needed // max(1, len(list(find(measured / writer.folder))))
    outcome = Outcome()
    for _ in range(times):
        with small_disk(fresh("disk"), 2 * needed + (16 << 20)) as disk:
            root = disk / "run"
            room = chance.randrange(each // 20, max(needed, each + 1) + each // 2)
            free = shutil.disk_usage(disk).free
            with (disk / "ballast").open("wb") as ballast:
                os.posix_fallocate(ballast.fileno(), 0, max(1, free - room))
            gang = Gang(writer, root)
            saved = sum(line.startswith("end") for line in gang.lines())
            gang.close()
            outcome.inside += saved < len(writer.steps) or gang.failed
            (disk / "ballast").unlink()
            judge(writer, root, outcome, f"{name}: full at {room:,} bytes")
    return outcome


def by_swap(writer: Writer, times: int, chance: random.Random, name: str) -> Outcome:
    """Each file of a step in the place of the same one of its neighbour; of many *times*."""
    root = fresh("run")
    measure(writer, root)
    outcome = Outcome()
    steps_at = root / writer.folder
    steps = sorted((c for c in find(steps_at) if not c.unfinished), key=lambda c: c.step)
    pairs = [
        (into, file, other)
        for old, new in itertools.pairwise(steps)
        for from_, into in ((old, new), (new, old))
        for file, other in _same_names(steps_at, into, from_)
    ]
    for into, file, other in chance.sample(pairs, min(len(pairs), times)):
        whole = file.read_bytes()
        if whole == other.read_bytes():
            continue
        file.write_bytes(other.read_bytes())
        outcome.inside += 1
        judge(writer, root, outcome, f"{name}: {file.relative_to(root)} of another step", only=into.step)
        file.write_bytes(whole)
    return outcome


def by_unnamed(writer: Writer, times: int, chance: random.Random, name: str) -> Outcome:
    """What is renamed at the end, under its temporary name."""
    root = fresh("run")
    measure(writer, root)
    outcome = Outcome()
    paths = sorted(path for path in root.rglob("*") if not path.is_symlink())
    for pattern, temporary in writer.renames.items():
        for path in (path for path in paths if fnmatch.fnmatch(str(path.relative_to(root)), pattern)):
            before = path.parent / temporary.format(name=path.name, parent=path.parent.name)
            path.rename(before)
            outcome.inside += 1
            judge(writer, root, outcome, f"{name}: {path.relative_to(root)} not renamed yet")
            before.rename(path)
    return outcome


def by_power(writer: Writer, times: int, chance: random.Random, name: str) -> Outcome:
    """The newest step as a file system may have it after a crash: names are there, the last bytes are not."""
    kept = fresh("kept")
    measure(writer, kept)
    outcome = Outcome()
    for _ in range(times):
        root = fresh("run")
        shutil.copytree(kept, root, symlinks=True)
        newest = max(find(root / writer.folder), key=lambda candidate: candidate.step)
        files = [file for file in files_of(root / writer.folder, newest) if file.stat().st_size]
        torn = chance.sample(files, chance.randint(1, len(files)))
        zeros = chance.random() < 0.5
        for file in torn:
            lose_end(file, chance, zeros=zeros)
        outcome.inside += 1
        how = "zeros in" if zeros else "lost ends of"
        judge(writer, root, outcome, f"{name}: {how} {', '.join(file.name for file in torn[:6])}", only=newest.step)
    return outcome


def lose_end(file: Path, chance: random.Random, *, zeros: bool) -> None:
    """Some pages to the end or, of zeros, to any other page."""
    size = file.stat().st_size
    pages = -(-size // PAGE)
    first = chance.randrange(pages)
    if not zeros:
        os.truncate(file, PAGE * first)
        return
    end = min(size, PAGE * chance.randint(first + 1, pages))
    with file.open("r+b") as there:
        there.seek(PAGE * first)
        there.write(bytes(end - PAGE * first))


KINDS: dict[str, Callable[[Writer, int, random.Random, str], Outcome]] = {
    "kill": by_kill,
    "rank": partial(by_kill, one=True),
    "full": by_full_disk,
    "swap": by_swap,
    "unnamed": by_unnamed,
    "power": by_power,
}


def files_of(root: Path, candidate: Candidate) -> list[Path]:
    """The regular files of one checkpoint, which is a file, a folder, or files beside each other."""
    if candidate.beside:
        return [root / name for name in candidate.beside]
    path = Path(str(candidate.path))
    return [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file() and not p.is_symlink())


def _same_names(root: Path, into: Candidate, other: Candidate) -> list[tuple[Path, Path]]:
    """Files of two steps that have the same name but for the step; of a checkpoint of one file none."""
    there = {_stepless(root, file, other.step): file for file in files_of(root, other)}
    here = files_of(root, into)
    found = [(file, there[key]) for file in here if (key := _stepless(root, file, into.step)) in there]
    return found if len(here) > 1 else []


def _stepless(root: Path, file: Path, step: int) -> str:
    return re.sub(rf"(?<!\d)0*{step}(?!\d)", "STEP", str(file.relative_to(root)))


def used(folder: Path) -> int:
    """Bytes of all files below, in whole pages."""
    sizes = (path.lstat().st_size for path in folder.rglob("*") if path.is_file())
    return sum(-(-size // PAGE) * PAGE for size in sizes)


@contextlib.contextmanager
def small_disk(at: Path, size: int) -> Iterator[Path]:
    """A file system of its own with so many bytes."""
    at.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(at)], check=True)
    try:
        yield at
    finally:
        subprocess.run(["umount", "-l", str(at)], check=True)
