"""Layouts that users declare in an annotation, and that the controller reads."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from healthd.checkpoints.formats import UnknownFormat, declared
from healthd.checkpoints.formats.layouts.custom import parse_declaration
from tests.checkpoints.judge import MEMORY, SECONDS

pytestmark = pytest.mark.slow

MERGES = "x0: &a0 {k: 1}\n" + "".join(
    f"x{level}: &a{level} {{<<: [{','.join([f'*a{level - 1}'] * 10)}]}}\n" for level in range(1, 12)
)
LISTS = "x0: &a0 [k]\n" + "".join(
    f"x{level}: &a{level} [{','.join([f'*a{level - 1}'] * 10)}]\n" for level in range(1, 12)
)
HOSTILE = {
    "merged aliases": "marker: DONE\n" + MERGES,
    "aliases of lists": "marker: DONE\n" + LISTS,
    "files that are aliases": LISTS + "files: *a11\n",
    "a list in itself": "files: &a [*a]\n",
    "a mapping in itself": "&a\n*a : 1\n",
    "a date": "marker: DONE\nranks: 2001-99-99\n",
    "sixties": "marker: DONE\nranks: " + ":".join(["59"] * 1300) + "\n",
    "digits": "marker: DONE\nranks: " + "9" * 4000 + "\n",
    "depth": "files:\n" + "[" * 4000,
    "depth of mappings": "\n" + "{" * 4000,
    "depth of both": "\n" + "[{" * 2000,
    "an object": "marker: !!python/object/apply:os.system [id]\n",
    "nothing": "\n\n",
}


def limit() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_declaration_is_refused_in_words(name: str) -> None:
    with pytest.raises(UnknownFormat, match="checkpoint format"):
        declared(HOSTILE[name])


def test_a_few_letters_do_not_take_all_memory(tmp_path: Path) -> None:
    (tmp_path / "text").write_text(HOSTILE["merged aliases"])
    script = "import sys; from healthd.checkpoints.formats import declared; declared(open(sys.argv[1]).read())"
    ended = subprocess.run(
        [sys.executable, "-c", script, tmp_path / "text"], capture_output=True, text=True, check=False, preexec_fn=limit
    )

    assert ended.stderr.splitlines()[-1].startswith("healthd.checkpoints.formats.UnknownFormat: ")


@pytest.mark.parametrize(
    ("written", "name"),
    [("*a*c*b", "a" * 4000 + "b"), ("*{rank}*x", "1" * 4000), ("*1*1*1{rank}x", "1" * 1990 + "y1x")],
)
def test_stars_are_not_tried_against_every_place(written: str, name: str) -> None:
    pattern = parse_declaration(f'files: ["{written}"]')

    assert not pattern.owns(name[:2000])


def test_what_is_said_of_an_unknown_format_is_short() -> None:
    with pytest.raises(UnknownFormat) as refused:
        declared("x" * 200_000)

    assert len(str(refused.value)) < 1000
