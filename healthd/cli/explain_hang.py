"""The last hang of a run, as `healthd explain` shows it: who held up the others, and what each rank did."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from healthd.cli.errors import UserError
from healthd.core.report.activity_svg import activity_svg
from healthd.core.report.activity_text import activity_lines
from healthd.local.hang.record import HangRecord, picture_of, record_lines

NO_PICTURE = (
    "no picture of a hang is kept for this. One is kept for the last hang that `healthd run` saw by the rhythm of the "
    "ranks of a run: `healthd explain --name RUN --svg FILE`"
)


def lines_of_hang(hang: HangRecord, width: int) -> Iterator[str]:
    """The suspects, the table of ranks and the picture of the last minutes, in lines of *width* that must not wrap."""
    yield from record_lines(hang, width)
    if (picture := picture_of(hang)) is not None:
        yield ""
        yield from activity_lines(picture, width=width, ascii_only=_wants_ascii())


def write_svg(hang: HangRecord | None, gang: str, path: Path) -> None:
    """Write the picture of *hang*, of the *gang* of that name. Raises UserError."""
    picture = picture_of(hang) if hang is not None else None
    if picture is None:
        raise UserError(NO_PICTURE)
    title = f"{gang}: no rank works after {picture.last_work:%Y-%m-%d %H:%M:%S} UTC"
    try:
        path.write_text(activity_svg(picture, title), encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror or error}") from error


def _wants_ascii() -> bool:
    """Whether the output may show ASCII alone, by its encoding, the terminal, or the user's NO_COLOR."""
    encoding = getattr(sys.stdout, "encoding", None) or ""
    return "utf" not in encoding.lower() or os.environ.get("TERM") == "dumb" or bool(os.environ.get("NO_COLOR"))
