"""Lines of drivers, as their sources print them: a table beside this module, one line a row."""

from __future__ import annotations

from pathlib import Path

_ROWS = [
    tuple(line.split(" | ", 1))
    for line in Path(__file__).with_suffix(".txt").read_text("utf-8").splitlines()
    if line and not line.startswith("# ")
]
_LINES = [(reported, text.replace("\\n", "\n").replace("\\t", "\t")) for reported, text in _ROWS]

RAISED = [
    (text, reported) for reported, text in _LINES if reported not in {"-", "?"} and not reported.startswith("ends ")
]
ENDED = [(text, reported.removeprefix("ends ")) for reported, text in _LINES if reported.startswith("ends ")]
HARMLESS = [text for reported, text in _LINES if reported == "-"]
UNREAD = [text for reported, text in _LINES if reported == "?"]
