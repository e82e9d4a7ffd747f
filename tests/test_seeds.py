"""Which seeds are fresh."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.seeds import first_fresh_seed, name_of, pieces


@pytest.fixture
def tarball(tmp_path: Path) -> Path:
    for folder in ("healthd", "tests"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "one.py").write_text("one = 1\n")
    return tmp_path


def commit(tree: Path, message: str) -> None:
    me = ["-c", "user.name=me", "-c", "user.email=me@example.com"]
    for command in (["init", "-q"], ["add", "."], [*me, "commit", "-qm", message]):
        subprocess.run(["git", *command], cwd=tree, check=True)


def test_a_tree_without_commits_has_the_seeds_of_its_sources(tarball: Path) -> None:
    before, again = (first_fresh_seed.__wrapped__(tarball) for _ in range(2))
    (tarball / "tests" / "one.py").write_text("one = 2\n")

    assert before == again
    assert first_fresh_seed.__wrapped__(tarball) != before


def test_each_commit_has_seeds_of_its_own(tarball: Path) -> None:
    of_sources = first_fresh_seed.__wrapped__(tarball)
    commit(tarball, "the first")
    of_commit = first_fresh_seed.__wrapped__(tarball)
    (tarball / "README.md").write_text("new\n")
    commit(tarball, "the second")

    assert len({of_sources, of_commit, first_fresh_seed.__wrapped__(tarball)}) == 3


def test_pieces_have_all_seeds_once_and_say_which() -> None:
    found = pieces(1, 250)

    assert [seed for piece in found for seed in piece] == list(range(1, 251))
    assert [name_of(piece) for piece in found] == ["seeds 1 to 125", "seeds 126 to 250"]
