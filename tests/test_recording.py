"""The recording is a picture that any browser can read, small because nothing is in it twice."""

from __future__ import annotations

import re
from xml.etree import ElementTree as Tree

from rich.style import Style

from tests.recording import CELL, Shot, distinct, svg

RED = Style(color="red", bold=True)
SVG = "{http://www.w3.org/2000/svg}"


def shots() -> list[Shot]:
    first = ((("slot-0 ", None), ("<bad>", RED)), (("same", None),))
    second = ((("slot-0 ", None), ("good", None)), (("same", None),))
    return [Shot(0.0, first), Shot(1.0, first), Shot(2.0, second)]


def picture() -> Tree.Element:
    return Tree.fromstring(svg(distinct(shots()), columns=20, lines=2))


def test_what_did_not_change_is_no_new_picture() -> None:
    assert [shot.second for shot in distinct(shots())] == [0.0, 2.0]


def test_each_row_is_in_it_once() -> None:
    texts = [text.text for text in picture().iter(f"{SVG}text")]

    assert sorted(filter(None, texts)) == ["<bad>", "good", "same", "slot-0", "slot-0"]


def test_colours_are_kept() -> None:
    bad = next(text for text in picture().iter(f"{SVG}text") if text.text == "<bad>")

    assert (bad.get("font-weight"), bad.get("fill", "")[:1]) == ("bold", "#")


def test_a_curve_is_drawn_within_its_cells_whatever_the_font() -> None:
    curve = Tree.fromstring(
        svg([Shot(0.0, ((("│", None), (" \u2801\u2880 ", RED), ("│", None)),))], columns=6, lines=1)
    )
    (path,) = curve.iter(f"{SVG}path")
    dots = [tuple(map(float, dot.split())) for dot in re.findall(r"M([\d. ]+)h", path.get("d", ""))]

    assert [text.text for text in curve.iter(f"{SVG}text") if text.text] == ["│", "│"]
    assert [(int(x / CELL[0]), int(y / CELL[1] * 4)) for x, y in dots] == [(2, 0), (3, 3)]


def test_it_plays_by_itself_and_stands_still_for_who_asks() -> None:
    style = next(picture().iter(f"{SVG}style")).text or ""

    assert "@keyframes film" in style
    assert "prefers-reduced-motion" in style
