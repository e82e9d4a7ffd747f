"""What healthd says of every step that an interrupted writer left, beside what its library makes of it."""

from __future__ import annotations

import re
import signal
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from healthd.checkpoints.latest import Candidate, Rejected, VerifyLevel, latest, verify
from healthd.checkpoints.steps import find
from tests.frameworks.compare_with_loaders import why_it_fails
from tests.frameworks.saving import OtherValues, Writer, note_imports


@dataclass(kw_only=True)
class Outcome:
    """What became of the candidates of one kind of interruption."""

    times: int = 0
    inside: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)


def judge(writer: Writer, root: Path, outcome: Outcome, what: str, *, only: int | None = None) -> None:
    """Compare healthd's word on every step, or on one, with the library's."""
    root = root / writer.folder
    outcome.times += 1
    right = []
    candidates = [candidate for candidate in find(root) if only is None or candidate.step == only]
    for candidate in candidates:
        said = {level: why_refused(candidate, level) for level in VerifyLevel}
        fails = why_it_fails(partial(load, writer, candidate), Path(str(candidate.path)))
        became = _became(fails)
        for level, reason in said.items():
            word = "refused" if reason else "good"
            outcome.counts[f"{level}: {word}, {became}"] += 1
            if not reason and fails and level is VerifyLevel.FULL:
                print(f"{what}: step {candidate.step} good, but {fails[:300]}", flush=True)
        if not fails:
            right.append(candidate.step)
            outcome.lost[_without_numbers(said[VerifyLevel.FULL])] += bool(said[VerifyLevel.FULL])
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


def why_refused(candidate: Candidate, level: VerifyLevel) -> str:
    said = verify(candidate, level=level)
    return said.reason if isinstance(said, Rejected) else ""


def load(writer: Writer, candidate: Candidate, path: Path) -> None:
    writer.load(path, candidate.step)
    note_imports()


def _without_numbers(reason: str) -> str:
    return re.sub(r"\d[\d,]*", "N", reason)
