"""Published rates, used until a fleet has a history of its own. Each names its source."""

from __future__ import annotations

from typing import NamedTuple

DAYS_IN_MONTH = 30
HOURS_IN_MONTH = 24 * DAYS_IN_MONTH


class Figure(NamedTuple):
    """A number, and where it comes from."""

    value: float
    source: str


NODE_FAILURES_PER_DAY = Figure(
    6.5e-3, "6.5 failures in 1,000 node-days: Kokolis et al., HPCA 2025 (arXiv 2410.21680), cluster RSC-1 of A100 nodes"
)
"""The same paper has 2.34 for the cluster RSC-2."""
REPAIR_HOURS = Figure(24.0, "24 h until a node is back: an assumption, no published figure is known")
LEMON_RATIO = Figure(
    15.0,
    "3 of 63 nodes had over half of all exclusions in 73 days: arXiv 2605.09370, 504 GPUs; so at least 20 times "
    "the rate of the others. Meta removed lemons that failed about 10 times as often (arXiv 2410.21680)",
)
"""How much more often a lemon fails than a node of its kind usually does."""
