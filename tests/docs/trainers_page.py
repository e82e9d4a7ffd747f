"""The page about trainers, taken apart: each script that it quotes, and the command that runs it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import NamedTuple

from tests.docs.page import ROOT

EXAMPLES = ROOT / "examples" / "trainers"
PAGE = (ROOT / "docs" / "trainers.md").read_text()


class Example(NamedTuple):
    """A script as the page quotes it, with the options of `healthd run` and the script's command line below it."""

    name: str
    quoted: str
    options: tuple[str, ...]
    script: tuple[str, ...]

    @property
    def path(self) -> Path:
        """The file that the page quotes."""
        return EXAMPLES / self.name


def examples() -> dict[str, Example]:
    """Every script of the page, by the name of its file."""
    blocks = re.findall(r"/(\w+\.py)\):\n\n```python\n(.*?)```\n\n```sh\n(.*?)\n```", PAGE, re.DOTALL)
    return {name: _example(name, quoted, line) for name, quoted, line in blocks}


def _example(name: str, quoted: str, line: str) -> Example:
    words = shlex.split(line.rpartition("healthd run ")[2])
    at = words.index("--")
    python, *script = words[at + 1 :]
    assert python == "python", line
    return Example(name, quoted, tuple(words[:at]), tuple(script))
