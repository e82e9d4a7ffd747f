"""The pages that people read, taken apart: code blocks and commands."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tests import quick_yaml

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "kubernetes"
"""The manifests of the pages about Kubernetes."""
MY_CLUSTER = EXAMPLES / "my-cluster" / "kustomization.yaml"

_BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Page:
    """A page in Markdown."""

    path: Path

    @cached_property
    def text(self) -> str:
        return self.path.read_text()

    def blocks(self, language: str) -> list[str]:
        """The code blocks of one language. Those without a language are what is typed and printed."""
        return [textwrap.dedent(text) for _, said, text in _BLOCK.findall(self.text) if said == language]

    def parts(self) -> list[tuple[str, str]]:
        """The blocks that quote a file: its name from their first line, and the quotation."""
        found = [re.match(r"# part of (\S+)\n(.*)", block, re.DOTALL) for block in self.blocks("yaml")]
        return [(match[1], match[2]) for match in found if match]

    def fragments(self, first_line: str) -> list[dict[str, Any]]:
        """The blocks of YAML with this comment as their first line."""
        return [quick_yaml.load(text) for text in self.blocks("yaml") if text.startswith(f"# {first_line}\n")]

    def commands(self) -> list[str]:
        """What a person types after a dollar."""
        lines = [line for text in self.blocks("") for line in text.splitlines()]
        return [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]

    def scripts(self, heading: str) -> list[str]:
        """What a person types below a heading, block by block: lines after a dollar, or a block that is a script."""
        (section,) = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", self.text, re.MULTILINE | re.DOTALL)
        found = [textwrap.dedent(text) for _, said, text in _BLOCK.findall(section) if not said]
        typed = [[line.removeprefix("$ ") for line in text.splitlines() if line.startswith("$ ")] for text in found]
        return ["\n".join(lines) or text for lines, text in zip(typed, found, strict=True)]


def named_tests(text: str) -> list[tuple[str, str]]:
    """File and name of each test that a page names: as `file.py::test` or, of the same file, as `::test`."""
    named: list[tuple[str, str]] = []
    file = ""
    for path, test in re.findall(r"`([\w/]*\.py)?(?:::(\w+))?`", text):
        file = path or file
        if test:
            named.append((file, test))
    return named


def is_test(path: str, test: str) -> bool:
    """Whether there is such a test."""
    return f"def {test}(" in (ROOT / "tests" / path).read_text()


def kubernetes_page(name: str) -> Page:
    """One of the pages about Kubernetes."""
    return Page(ROOT / "docs" / "kubernetes" / f"{name}.md")


KUBERNETES_PAGES = [Page(path) for path in sorted((ROOT / "docs" / "kubernetes").glob("*.md"))]


def manifests() -> dict[str, str]:
    """The example manifests by file name."""
    return {path.name: path.read_text() for path in sorted(EXAMPLES.glob("*.yaml"))}
