"""Every page that a comment, a message, a manifest or another page names by its path exists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.docs.page import ROOT
from tests.docs.test_links import anchors

NAMES_A_PAGE = re.compile(r"(?<![\w/.-])docs/(?:[\w-]+/)*(?:[\w-]+\.md)?(?:#[\w-]+)?")
KINDS = {".py", ".yaml", ".toml", ".json", ".md"}


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
    return page.exists() and (not anchor or anchor in anchors(page))
