"""Every link from one page of the project to another leads to a file, and to a heading that is in it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.page import ROOT

PAGES = sorted(
    path for where in ("*.md", "docs/**/*.md", "examples/**/*.md", "tests/**/*.md") for path in ROOT.glob(where)
)
_CODE = re.compile(r"^( *)```.*?^\1```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")


def text_of(page: Path) -> str:
    """The page without its code blocks."""
    return _CODE.sub("", page.read_text())


def anchors(page: Path) -> set[str]:
    """The headings of a page, as a link spells them."""
    headings = re.findall(r"^#+ (.*)$", text_of(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def leads_somewhere(page: Path, link: str) -> bool:
    """Whether *link*, relative to *page*, names a file here, and a heading of it after a `#`."""
    path, _, heading = link.partition("#")
    target = page.parent / path if path else page
    return target.exists() and (not heading or heading in anchors(target))


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_every_link_leads_somewhere(page: Path) -> None:
    links = [link for link in _LINK.findall(text_of(page)) if "://" not in link]

    assert [link for link in links if not leads_somewhere(page, link)] == []
