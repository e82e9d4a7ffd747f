"""The page about the architecture and its picture name what is there."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from tests.docs import architecture_picture
from tests.docs.drawing import Arrow, Box, svg
from tests.docs.page import ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text()
FOLDERS = ("healthd", "tests", "deploy", "grafana", "docs", "examples")
FILES = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".yaml", ".md")]
PLACES = {
    f"/{place.relative_to(ROOT)}" for path in FILES for place in (path, *path.parents) if place.is_relative_to(ROOT)
}


def there_is(path: str) -> bool:
    """Whether *path* is the end of the path of a file or a folder here."""
    return any(place.endswith(f"/{path.rstrip('/')}") for place in PLACES)


def test_the_picture_is_the_one_that_the_script_draws() -> None:
    assert architecture_picture.FILE.read_text() == architecture_picture.picture()
    assert "](architecture.svg)" in PAGE


def test_the_picture_names_paths_of_the_code() -> None:
    paths = {path for box in architecture_picture.boxes() for line in box.code for path in line.split(", ")}

    assert len(paths) > 10
    assert [path for path in paths if not there_is(path)] == []


@pytest.mark.parametrize("page", ["architecture.md", "design/fence.md", "design/budget.md", "design/verification.md"])
def test_a_page_names_paths_of_the_code(page: str) -> None:
    paths = set(re.findall(r"`((?:[\w.-]+/)*(?:[\w-]+\.py|[\w-]+/))`", (ROOT / "docs" / page).read_text()))

    assert len(paths) > (60 if page == "architecture.md" else 2)
    assert sorted(path for path in paths if not there_is(path)) == []


def test_six_files_are_to_be_read_first() -> None:
    _, section = PAGE.split("## Read these six files first\n", 1)
    files = re.findall(r"^\d\. \[`([\w/]+\.py)`\]\(\.\./healthd/\1\)", section.partition("\n## ")[0], re.MULTILINE)

    assert len(files) == 6


@pytest.mark.parametrize(
    "box",
    [
        Box(x=0, y=0, width=40, height=60, title="A title that is too long"),
        Box(x=0, y=0, width=90, height=60, title="Title", code=["a/path/that/is/long.py"]),
        Box(x=0, y=0, width=200, height=30, title="Title", text=["one line too many"]),
    ],
)
def test_a_text_that_runs_over_its_box_is_an_error(box: Box) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        svg(300, 100, "name", "said", [box], [])


def test_boxes_that_overlap_are_an_error_unless_one_lies_in_the_other() -> None:
    group = Box(x=0, y=0, width=200, height=90, title="Group")
    inside, across = replace(group, y=40, height=40, title="Inside"), replace(group, y=60, title="Across")

    assert svg(300, 100, "name", "said", [group, inside], [])
    with pytest.raises(ValueError, match="'Group' and 'Across' overlap"):
        svg(300, 100, "name", "said", [group, across], [])


def test_a_label_longer_than_its_arrow_is_an_error() -> None:
    with pytest.raises(ValueError, match="longer than its arrow"):
        svg(300, 100, "name", "said", [], [Arrow([(0, 50), (30, 50)], "much too long", (15, 45))])


def test_a_drawing_is_well_formed_whatever_its_texts_are() -> None:
    box = Box(x=0, y=0, width=200, height=60, title="<a> & b", text=["c > d"])
    drawn = ElementTree.fromstring(svg(300, 100, "<name>", "a & b", [box], []))

    assert [text.text for text in drawn.iter("{http://www.w3.org/2000/svg}text")] == ["<a> & b", "c > d"]
