"""
Draws the picture of the page about hangs: four made-up ranks whose last minutes `healthd explain --svg` would show so.

`make docs` writes `docs/hangs/hang.svg`; `python -m tests.docs.hang_picture` does that alone.
"""

from __future__ import annotations

from healthd.core.hang.history import history_of
from healthd.core.report.activity_picture import ActivityPicture
from healthd.core.report.activity_svg import activity_svg
from tests.core.hang.sampled import Gang, evaluates, is_stopped, sleeps, spins, steps
from tests.docs.page import ROOT

FILE = ROOT / "docs" / "hangs" / "hang.svg"
SUSPECT = 2


def a_picture() -> ActivityPicture:
    """Rank 0 evaluates for a while; later rank 2 is stopped, and rank 3 polls for what does not come."""
    gang = Gang(4, seed=7)
    gang.run(100, steps())
    gang.run(14, evaluates, sleeps, sleeps, sleeps)
    gang.run(63, steps())
    gang.run(4, steps(), steps(), is_stopped, steps())
    silence = gang.run(60, sleeps, sleeps, is_stopped, spins)
    if silence is None:
        raise ValueError("the made-up ranks do not hang")
    nodes = {rank: f"slot-{rank}" for rank in range(4)}
    return ActivityPicture(
        history=history_of(gang.rhythm, silence), last_work=silence.since, suspects={SUSPECT}, nodes=nodes
    )


def picture() -> str:
    """The whole file."""
    made = a_picture()
    return activity_svg(made, f"llama: no rank works after {made.last_work:%Y-%m-%d %H:%M:%S} UTC")


if __name__ == "__main__":
    FILE.write_text(picture())
