"""The fuzzing of checkpoints itself, in small: it finds nothing, is the same each time, and would find something."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from healthd.checkpoints.formats import VerifyLevel
from healthd.checkpoints.latest import Candidate, Checkpoint, verify
from tests.checkpoints.judge import FAULT, Judge, Verdict
from tests.fuzz.checkpoint_seeds import Seed, seeds
from tests.fuzz.checkpoints import fuzz, made

pytestmark = pytest.mark.slow

REFUSED_WHEN_WHOLE = {"legacy-10.pt", "lightning-weights/epoch=0-step=6.ckpt"}


class Weak:
    """Falls over the tenth question."""

    asked = 0

    def verify(self, path: Path, level: VerifyLevel = VerifyLevel.FULL, beside: Sequence[str] = ()) -> Verdict:
        self.asked += 1
        return Verdict(f"could not be verified, a {FAULT}" if self.asked == 10 else "", seconds=self.asked, peak=7)


@pytest.mark.slow
def test_nothing_is_found(tmp_path: Path) -> None:
    with Judge() as judge:
        report = fuzz(range(150), 7, judge, tmp_path)

    assert report.failures == []
    assert report.cases == 150
    assert set(report.words) == {"quick good", "quick refused", "full good", "full refused"}


@pytest.mark.parametrize("seed", seeds(), ids=lambda seed: seed.name)
def test_what_is_damaged_was_whole(tmp_path: Path, seed: Seed) -> None:
    for name, content in seed.files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    outcome = verify(Candidate(path=tmp_path / seed.path, step=10, beside=seed.beside))

    assert isinstance(outcome, Checkpoint) is (seed.name not in REFUSED_WHEN_WHOLE)


def test_the_same_seed_gives_the_same_files(tmp_path: Path) -> None:
    digests = [fuzz(range(20), seed, Weak(), tmp_path / str(n)).digest for n, seed in enumerate([7, 7, 8])]

    assert digests[0] == digests[1] != digests[2]


def test_a_case_is_the_same_alone() -> None:
    assert made(5, 7, seeds()).content == made(5, 7, seeds()).content


def test_a_fault_is_found_and_its_case_named(tmp_path: Path) -> None:
    report = fuzz(range(10), 7, Weak(), tmp_path)

    assert len(report.failures) == 1
    assert report.failures[0].startswith("case 4 (")
    assert report.slowest.seconds == 20
