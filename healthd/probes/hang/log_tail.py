"""The last lines that a rank wrote, from the file of its log."""

from __future__ import annotations

import re

from healthd.core.hang.suspects.evidence import LONGEST_LINE, MOST_LOG_LINES, bounded
from healthd.probes.hang.files import read_end

_READ = 64 << 10
"""Bytes from the end."""
_ENDS = re.compile(rb"[\r\n]+")
"""Progress bars write over their line after a carriage return."""


def last_lines(path: str) -> tuple[str, ...]:
    """At most `MOST_LOG_LINES` of *path*, the newest last, cut and printable. Raises CannotRead."""
    lines = [
        line.decode(errors="replace").strip() for line in _ENDS.split(read_end(path, _READ))[-4 * MOST_LOG_LINES :]
    ]
    return tuple(bounded(line, LONGEST_LINE) for line in lines if line)[-MOST_LOG_LINES:]
