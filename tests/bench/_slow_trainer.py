"""
The script that `tests.bench.stragglers --real` starts: the demo's trainer, in which one rank becomes slow.

`python _slow_trainer.py BY AFTER VICTIM PACE HOW -- …` takes the trainer's own arguments after `--`. From AFTER seconds
on rank VICTIM computes, or sleeps, for BY x PACE seconds more in each step. The others wait for it.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence

from healthd.local.demo import trainer

IS_SCRIPT = __name__ == "__main__"
BY, AFTER, VICTIM, PACE = (float(each) for each in sys.argv[1:5]) if IS_SCRIPT else (0.0, 0.0, 0.0, 0.0)
SLEEPS = IS_SCRIPT and sys.argv[5] == "sleeps"


class Group(trainer.RankGroup):
    """A group of which one rank needs longer before it exchanges gradients."""

    _began = 0.0

    def add(self, mine: dict[int, list[float]]) -> list[float]:
        """As the trainer's."""
        self._began = self._began or time.monotonic()
        if mine and self.rank == VICTIM and time.monotonic() - self._began > AFTER:
            _be_late()
        return super().add(mine)


def _be_late() -> None:
    if SLEEPS:
        time.sleep(BY * PACE)
        return
    until = time.thread_time() + BY * PACE
    while time.thread_time() < until:
        pass


def main(argv: Sequence[str]) -> int:
    """Train."""
    sys.argv = [sys.argv[0], *argv]
    trainer.RankGroup = Group  # type: ignore[misc]
    return trainer.main()


if IS_SCRIPT:
    print(f"rank {os.environ['RANK']}", flush=True)
    sys.exit(main(sys.argv[sys.argv.index("--") + 1 :]))
