"""Every link of every page leads somewhere, and every page that the code names exists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.page import ALL_PAGES, ROOT, Page

NAMES_A_PAGE = re.compile(r"(?<![\w/.-])docs/(?:[\w-]+/)*(?:[\w-]+\.md)?(?:#[\w-]+)?")
KINDS = {".py", ".yaml", ".toml", ".json", ".md"}


def lost_links(page: Page) -> Iterator[str]:
    for link in page.links():
        path, _, anchor = link.partition("#")
        target = (page.path.parent / path).resolve() if path else page.path
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in Page(target).anchors()):
            yield link


@pytest.mark.parametrize("page", ALL_PAGES, ids=[str(page.path.relative_to(ROOT)) for page in ALL_PAGES])
def test_every_link_of_a_page_leads_somewhere(page: Page) -> None:
    assert list(lost_links(page)) == []


def files_that_name_pages() -> Iterator[Path]:
    """Not the changelog: it names pages as they were called at the time."""
    yield from (ROOT / "README.md", ROOT / "CONTRIBUTING.md")
    for name in ("healthd", "deploy", "docs", "grafana", "examples", "tests"):
        yield from (path for path in (ROOT / name).rglob("*") if path.suffix in KINDS)


def test_every_page_that_a_file_names_exists() -> None:
    lost = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in files_that_name_pages()
        for name in NAMES_A_PAGE.findall(path.read_text())
        if not is_there(name)
    ]

    assert lost == []


def is_there(name: str) -> bool:
    path, _, anchor = name.partition("#")
    page = ROOT / path
    return page.exists() and (not anchor or anchor in Page(page).anchors())
