"""
Interrupt real writers in the middle of a save, and compare healthd's word with what the library then loads.

`python -m tests.checkpoints.interrupted NAME... [--times N] [--seed S] [--kinds kill,full,...]`, run by hand where the
frameworks and healthd's own dependencies are installed. A writer (`WRITERS` in `writers_torch` and `writers_arrays`)
saves some steps, each with other values, the way its framework does it. The kinds of interruption:

- `kill`: all processes of the writer end by SIGKILL at a random moment of a save; `rank`: one of them, the rest later
- `full`: the disk, a small tmpfs, has no room left at a random moment (needs root, is left out without)
- `swap`: a file of one step stands in another, for every pair of files of the same name
- `unnamed`: what the library renames into place at the end still has its temporary name
- `power`: files of the newest step end early or have pages of zeros, as after a loss of power when nothing was flushed

After each, every step is verified and loaded. Told are those that healthd calls good and that the library does not
load, or loads with the values of another step; and the saves that healthd refuses though they load: work lost.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import importlib
import importlib.util
import itertools
import logging
import os
import random
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from healthd.checkpoints.latest import Candidate, Level, Rejected, latest, verify
from healthd.checkpoints.steps import find
from tests.checkpoints.compare_with_loaders import why_it_fails

LATE = 1.1
"""Kills come within this many times the length of an undisturbed save."""
PATIENCE = 90.0
"""Seconds that a run may take."""
GRACE = 1.5
"""Seconds for which the other ranks outlive one that was killed, at most."""
PAGE = 4096
_SCRATCH = Path(tempfile.mkdtemp(prefix="interrupted-"))


class OtherValues(Exception):
    """A checkpoint loads, but is not what was saved for its step."""


class Run:
    """One rank's part of one run of a writer."""

    def __init__(self, root: Path, rank: int, ranks: int, steps: tuple[int, ...], port: int, told: int) -> None:
        self.root = root
        """The folder of the steps, which is there."""
        self.rank = rank
        self.ranks = ranks
        self.steps = steps
        self.port = port
        """Free, for the meeting of the ranks."""
        self._told = told
        self._began = 0.0

    def begin(self, step: int) -> None:
        """Called by rank 0 right before it saves *step*."""
        self._began = time.monotonic()
        self._tell(f"begin {step}")

    def end(self, step: int) -> None:
        """Called by rank 0 when *step* is saved, of an asynchronous save the end of that."""
        self._tell(f"end {step} {time.monotonic() - self._began}")

    @contextlib.contextmanager
    def saving(self, step: int) -> Iterator[None]:
        """Around a save."""
        self.begin(step)
        yield
        self.end(step)

    def _tell(self, line: str) -> None:
        if not self.rank:
            os.write(self._told, f"{line}\n".encode())


@dataclass(frozen=True, kw_only=True)
class Writer:
    """How one framework saves and loads."""

    save: Callable[[Run], None]
    """One rank: saves every step of the run, each with values of its own, and deletes old ones as it does in use."""
    load: Callable[[Path, int], None]
    """Loads a checkpoint, which may stand for several files, and raises OtherValues when it is not that of the step."""
    ranks: int = 1
    steps: tuple[int, ...] = (10, 20, 30)
    packages: tuple[str, ...] = ()
    """What has to be installed; imported once, not in each process."""
    folder: str = ""
    """Where below the root the steps are."""
    renames: Mapping[str, str] = field(default_factory=dict)
    """Patterns of the names of files or folders that are renamed into place, relative to the root, each with the
    temporary name; `{name}` and `{parent}` in it stand for those of the path."""


@dataclass(kw_only=True)
class Outcome:
    """What became of the candidates of one kind of interruption."""

    times: int = 0
    inside: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)


class Gang:
    """The processes of a run, each in a group of its own so that what it starts ends with it."""

    def __init__(self, writer: Writer, root: Path) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self._reader, told = os.pipe()
        self._unread = b""
        port = free_port()
        runs = [Run(root, rank, writer.ranks, writer.steps, port, told) for rank in range(writer.ranks)]
        self.pids = [self._start(writer, run) for run in runs]
        os.close(told)
        self.failed = False

    def _start(self, writer: Writer, run: Run) -> int:
        pid = os.fork()
        if pid:
            return pid
        os.setpgid(0, 0)
        os.close(self._reader)
        signal.alarm(int(PATIENCE))
        log = os.open(_log(run.rank), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        status = 1
        try:
            writer.save(run)
            _note_imports()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)

    def until(self, line: str) -> bool:
        """Wait for this line. False when the run ends without it."""
        return any(told == line for told in self.lines())

    def lines(self, within: float = PATIENCE) -> Iterator[str]:
        """What the run tells, until all its processes ended or for so many seconds."""
        end = time.monotonic() + within
        while time.monotonic() < end:
            while b"\n" in self._unread:
                line, _, self._unread = self._unread.partition(b"\n")
                yield line.decode()
            if not select.select([self._reader], [], [], min(0.2, max(0.0, end - time.monotonic())))[0]:
                if self._one_failed():
                    return
                continue
            more = os.read(self._reader, 4096)
            if not more:
                return
            self._unread += more

    def kill(self, *ranks: int) -> None:
        """End all of it at once, or these ranks."""
        for rank in ranks or range(len(self.pids)):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pids[rank], signal.SIGKILL)
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pids[rank], signal.SIGKILL)

    def close(self, within: float = 0) -> None:
        """Wait for all, and end what is left after so many seconds."""
        end = time.monotonic() + within
        while time.monotonic() < end and any(self._ended(pid) is None for pid in self.pids):
            time.sleep(0.02)
        self.kill()
        for pid in self.pids:
            with contextlib.suppress(ChildProcessError):
                _, status = os.waitpid(pid, 0)
                self.failed |= bool(status)
        os.close(self._reader)

    def _one_failed(self) -> bool:
        """Whether a rank ended with an error, so that a launcher would end the others."""
        return any(self._ended(pid) for pid in self.pids)

    @staticmethod
    def _ended(pid: int) -> int | None:
        """How a process ended; None while it runs."""
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return ended.si_status if ended else None


def measure(writer: Writer, root: Path) -> dict[int, float]:
    """Seconds that each save takes undisturbed. Raises RuntimeError when the writer fails by itself."""
    gang = Gang(writer, root)
    ends = [line.split() for line in gang.lines() if line.startswith("end")]
    gang.close(GRACE)
    took = {int(step): float(seconds) for _, step, seconds in ends}
    if gang.failed or set(took) != set(writer.steps):
        logs = "".join(_log(rank).read_text()[-3000:] for rank in range(writer.ranks) if _log(rank).exists())
        raise RuntimeError(f"the writer failed undisturbed, after {took}:\n{logs}")
    return took


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


def judge(writer: Writer, root: Path, outcome: Outcome, what: str, *, only: int | None = None) -> None:
    """Compare healthd's word on every step, or on one, with the library's."""
    root = root / writer.folder
    outcome.times += 1
    right = []
    candidates = [candidate for candidate in find(root) if only is None or candidate.step == only]
    for candidate in candidates:
        said = {level: _said(candidate, level) for level in Level}
        fails = why_it_fails(partial(_load, writer, candidate), Path(str(candidate.path)))
        became = _became(fails)
        for level, reason in said.items():
            word = "refused" if reason else "good"
            outcome.counts[f"{level}: {word}, {became}"] += 1
            if not reason and fails and level is Level.FULL:
                print(f"{what}: step {candidate.step} good, but {fails[:300]}", flush=True)
        if not fails:
            right.append(candidate.step)
            outcome.lost[_without_numbers(said[Level.FULL])] += bool(said[Level.FULL])
    _judge_latest(root, outcome, what, right, only)


def _judge_latest(root: Path, outcome: Outcome, what: str, right: list[int], only: int | None) -> None:
    if only is not None or not right:
        return
    found = latest(root).found
    if found is None:
        outcome.counts["latest: nothing found, though a step loads"] += 1
        print(f"{what}: nothing found, though {max(right)} loads", flush=True)
    elif found.step < max(right):
        outcome.counts["latest: an older one than the newest that loads"] += 1


def _became(fails: str) -> str:
    if fails == f"ended by {signal.SIGALRM.name}":
        return "no answer in time"
    return "other values" if fails.startswith(OtherValues.__name__) else "fails" if fails else "loads"


def _said(candidate: Candidate, level: Level) -> str:
    said = verify(candidate, level=level)
    return said.reason if isinstance(said, Rejected) else ""


def _load(writer: Writer, candidate: Candidate, path: Path) -> None:
    writer.load(path, candidate.step)
    _note_imports()


def _without_numbers(reason: str) -> str:
    return re.sub(r"\d[\d,]*", "N", reason)


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


def fresh(name: str) -> Path:
    """A path below the scratch folder where nothing is."""
    shutil.rmtree(_SCRATCH / name, ignore_errors=True)
    return _SCRATCH / name


def free_port() -> int:
    """A port of this machine that nobody has."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


def warm_up(writer: Writer) -> None:
    """Import here what a save and a load import late, so that it is done once, and not within what is measured."""
    root = fresh("warm")
    measure(writer, root)
    _import_noted()
    for candidate in find(root / writer.folder):
        fails = why_it_fails(partial(_load, writer, candidate), Path(str(candidate.path)))
        if fails or _said(candidate, Level.FULL):
            print(f"UNDISTURBED: step {candidate.step}: {fails or _said(candidate, Level.FULL)}", flush=True)
        _import_noted()


def _note_imports() -> None:
    (_SCRATCH / f"imports-{os.getpid()}").write_text("\n".join(sys.modules))


def _import_noted() -> None:
    for noted in _SCRATCH.glob("imports-*"):
        for module in noted.read_text().split():
            if module not in sys.modules:
                with contextlib.suppress(Exception):  # some are no modules by that name
                    importlib.import_module(module)
        noted.unlink()


def _log(rank: int) -> Path:
    return _SCRATCH / f"rank-{rank}.log"


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
    for module in ("tests.checkpoints.writers_torch", "tests.checkpoints.writers_arrays"):
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
    try:
        for name in arguments.names:
            interrupt(name, table[name], arguments.kinds.split(","), arguments.times, arguments.seed)
    finally:
        shutil.rmtree(_SCRATCH, ignore_errors=True)


if __name__ == "__main__":
    importlib.import_module("tests.checkpoints.interrupted").main()  # under the name by which the writers know it
