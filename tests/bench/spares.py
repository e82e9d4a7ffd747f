"""
How exact spares plans are: `python -m tests.bench.spares [YEARS]`.

Each fleet is planned, and then simulated for 1,000 years with the planned number of spares, from failure to failure and
from repair to repair; repair times are exponential, or lognormal with a few very long ones. `planned` and `simulated`
are the share of time in which more nodes are broken than there are spares, in percent.

Spares are whole numbers, so a plan is mostly better than what was asked for. In the rows `exact_…` the failure rate is
chosen so that the planned number gives exactly the asked-for shortage: there `simulated` is to be `asked` itself.
`worst_points` is the largest difference between simulated and planned, in percentage points. Seeded.
"""

from __future__ import annotations

import json
import random
import sys
from typing import Any

from healthd.core.reliability.published import NODE_FAILURES_PER_DAY
from healthd.core.reliability.spares_plan import Fleet, option, plan
from tests.bench._figures import machine
from tests.core.reliability.repairs import RepairTime, exponential, lognormal, simulate

YEARS = 1000
PUBLISHED = NODE_FAILURES_PER_DAY.value * 30
FLEETS: dict[str, tuple[Fleet, RepairTime]] = {
    "63_nodes_24h": (Fleet(63, PUBLISHED, 24), exponential),
    "63_nodes_24h_lognormal": (Fleet(63, PUBLISHED, 24), lognormal),
    "256_nodes_24h": (Fleet(256, PUBLISHED, 24), exponential),
    "256_nodes_4h_lognormal": (Fleet(256, PUBLISHED, 4), lognormal),
    "1024_nodes_24h": (Fleet(1024, PUBLISHED, 24), exponential),
    "100_nodes_two_crews": (Fleet(100, 0.3, 24, crews=2), exponential),
}
ASKED = (0.05, 0.01, 0.001)


def main() -> None:
    """Print one JSON object."""
    years = float(sys.argv[1]) if len(sys.argv) > 1 else YEARS
    rows: dict[str, dict[str, Any]] = {}
    for name, (fleet, repair_time) in FLEETS.items():
        for asked in ASKED if fleet.nodes < 1000 else (0.01,):
            rows[f"{name}_{100 * asked:g}%"] = measure(fleet, asked, repair_time, years)
    for asked in ASKED:
        rows[f"exact_{100 * asked:g}%"] = measure(exact(Fleet(63, PUBLISHED, 24), asked), asked, lognormal, years)
    worst = max(abs(row["simulated"] - row["planned"]) for row in rows.values())
    print(json.dumps({"years": years, "worst_points": round(worst, 4), "plans": rows, "machine": machine()}, indent=2))


def measure(fleet: Fleet, asked: float, repair_time: RepairTime, years: float) -> dict[str, Any]:
    """One plan and its simulation; shares in percent."""
    wanted = plan(fleet, asked, around=0).wanted
    assert wanted is not None
    seen = simulate(fleet, wanted.spares, years, random.Random(1), repair_time)
    return {
        "asked": 100 * asked,
        "spares": wanted.spares,
        "planned": round(100 * wanted.shortage, 4),
        "simulated": round(100 * seen.shortage, 4),
        "gpu_hours_planned": round(wanted.lost_gpu_hours, 1),
        "gpu_hours_simulated": round(seen.lost_gpu_hours, 1),
        "failures": seen.failures,
    }


def exact(fleet: Fleet, asked: float) -> Fleet:
    """The fleet with the failure rate at which the planned spares give exactly *asked*."""
    wanted = plan(fleet, asked, around=0).wanted
    assert wanted is not None
    low, high = fleet.failures, 4 * fleet.failures
    while high - low > 1e-9:
        middle = (low + high) / 2
        short = option(fleet._replace(failures=middle), wanted.spares).shortage > asked
        low, high = (low, middle) if short else (middle, high)
    return fleet._replace(failures=low)


if __name__ == "__main__":
    main()
