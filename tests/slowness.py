"""How slow this machine is now: bounds on processor time hold on one whose cores others use, too."""

from __future__ import annotations

import time

STEPS, USUAL = 1_000_000, 0.1
"""So many steps take so many seconds of processor time on the machine of docs/measured.md."""


def slowness() -> float:
    """How many times as long as usual a computation takes now; 1 on a faster machine."""
    began = time.process_time()
    total = 0
    for number in range(STEPS):
        total += number * number % 7
    return max(1.0, (time.process_time() - began) / USUAL)
