"""Names with stars and a place for a number."""

from __future__ import annotations

import re
from itertools import product

import pytest

from healthd.checkpoints.formats.layouts.patterns import Pattern

NAMES = ["".join(letters) for length in range(6) for letters in product("a1/", repeat=length)]


@pytest.mark.parametrize(
    ("written", "name", "numbers"),
    [
        ("snap_{step}", "snap_0012", (12,)),
        ("optim/{rank}.bin", "optim/3.bin", (3,)),
        ("*{rank}.bin", "w-12.bin", (12,)),
        ("*{rank}*", "run7-rank31-of", (31,)),
        ("*-{rank}-*", "a-1-2-b", (2,)),
        ("v2{rank}", "v213", (13,)),
        ("weights-*.raw", "weights-.raw", ()),
        ("weights-*.raw", "weights-a/b.raw", None),
        ("{rank}", "1" * 19, None),
        ("{rank}", "\u0663", None),
        ("a*a", "a", None),
    ],
)
def test_a_name_fits_and_reports_its_number(written: str, name: str, numbers: tuple[int, ...] | None) -> None:
    assert Pattern(written).match(name) == numbers


@pytest.mark.parametrize(
    "written", ["a", "*", "a*", "*a*1", "*1*1{rank}", "{rank}", "{rank}1*", "*{rank}*a", "a/{rank}", "*/*", "1*1*"]
)
def test_the_same_names_fit_as_by_trying_every_way(written: str) -> None:
    expression = re.escape(written).replace(r"\*", "[^/]*").replace(r"\{rank\}", r"\d{1,18}")

    fitting = [name for name in NAMES if Pattern(written).match(name) is not None]

    assert fitting == [name for name in NAMES if re.fullmatch(expression, name)]
