"""The page about Kubernetes, taken apart: its manifests, its commands, its links."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "kubernetes.md"
TEXT = PAGE.read_text()

_BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[str]:
    """The code blocks of one language; those without any are what is typed and printed."""
    return [textwrap.dedent(text) for _, said, text in _BLOCK.findall(TEXT) if said == language]


def files() -> dict[str, str]:
    """The blocks that are whole files, by the name in their first line."""
    named = [(re.match(r"# (\S+\.yaml)\n", text), text) for text in blocks("yaml")]
    return {found[1]: text for found, text in named if found and not found[1].startswith("my-cluster/")}


def kustomizations() -> list[str]:
    """The blocks that are somebody's own kustomization, whole."""
    return [text for text in blocks("yaml") if text.startswith("# my-cluster/kustomization.yaml\n")]


def fragment(first_line: str) -> dict[str, Any]:
    """The block that is a part of something, by its first line."""
    (found,) = [text for text in blocks("yaml") if text.startswith(f"# {first_line}\n")]
    part: dict[str, Any] = yaml.safe_load(found)
    return part


def commands() -> list[str]:
    """What a person types."""
    return [line.removeprefix("$ ") for text in blocks("") for line in text.splitlines() if line.startswith("$ ")]


def anchors() -> set[str]:
    """The headings of the page, as a link spells them."""
    headings = re.findall(r"^#+ (.*)$", _BLOCK.sub("", TEXT), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def scripts(heading: str) -> list[str]:
    """What a person types below a heading, block by block: lines after a dollar, or a block that is a script."""
    (section,) = re.findall(rf"^## {heading}\n(.*?)(?=^## )", TEXT, re.MULTILINE | re.DOTALL)
    found = [textwrap.dedent(text) for _, said, text in _BLOCK.findall(section) if not said]
    typed = [[line.removeprefix("$ ") for line in text.splitlines() if line.startswith("$ ")] for text in found]
    return ["\n".join(lines) or text for lines, text in zip(typed, found, strict=True)]
