"""Lines of drivers, as their sources print them: a table beside this module, one line a row."""

from __future__ import annotations

from pathlib import Path

_ROWS = [
    tuple(line.split(" | ", 1))
    for line in Path(__file__).with_suffix(".txt").read_text("utf-8").splitlines()
    if line and not line.startswith("# ")
]
_LINES = [(told, text.replace("\\n", "\n").replace("\\t", "\t")) for told, text in _ROWS]

RAISED = [(text, told) for told, text in _LINES if told not in {"-", "?"} and not told.startswith("ends ")]
ENDED = [(text, told.removeprefix("ends ")) for told, text in _LINES if told.startswith("ends ")]
HARMLESS = [text for told, text in _LINES if told == "-"]
UNREAD = [text for told, text in _LINES if told == "?"]
