"""
How well lemons are found in synthetic fleets: `python -m tests.bench.lemons [FLEETS]`.

The published case: 63 nodes, of which 3 had over half of all exclusions, observed for 73 days (arXiv 2605.09370). How
many exclusions there were altogether could not be looked up, so the figures are given for several numbers. The least is
what 63 nodes have in 73 days at the rate of hardware failures that Meta published (6.5 in 1,000 node-days: 30). Lemons
have exactly half, three equal ones, the hardest case of "over half". `differ`: the rates of good nodes are gamma
distributed with shape 2, so that one in ten has about twice the usual rate.

`by_weeks` are the same fleets, 60 exclusions in 73 days, after fewer and more weeks. `good_fleets` have no lemon: nodes
that are called one, of all nodes. Seeded: the same fleets each time. `rank_ms` is the CPU time of a ranking of 10,000
nodes with eight GPUs each.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections import Counter
from typing import Any

from healthd.core.reliability.ranking import rank
from tests.bench._figures import machine
from tests.core.reliability.fleets import STUDY_DAYS, Recipe, found, precision_and_recall
from tests.core.reliability.histories import NOW, a_history, an_outage

FLEETS = 1000
OUTAGES = (30, 37, 45, 60, 90, 150)
WEEKS = (2, 4, 6, 8, 12, 16)


def main() -> None:
    """Print one JSON object."""
    fleets = int(sys.argv[1]) if len(sys.argv) > 1 else FLEETS
    figures: dict[str, Any] = {}
    for name, shape in (("alike", 0.0), ("differ", 2.0)):
        figures[name] = {f"{n}_exclusions": measure(Recipe(outages=n, shape=shape), fleets) for n in OUTAGES}
    figures["by_weeks"] = {f"{n}_weeks": measure(Recipe(outages=60, days=7 * n), fleets) for n in WEEKS}
    figures["good_fleets"] = good_fleets()
    print(json.dumps({**figures, "days": STUDY_DAYS, "rank_ms": rank_ms(), "machine": machine()}, indent=2))


def measure(recipe: Recipe, fleets: int) -> dict[str, float]:
    """Precision and recall over all *fleets* together, in percent."""
    draw, counts = random.Random(1), Counter[str]()
    for _ in range(fleets):
        counts += found(recipe, draw)
    precision, recall = precision_and_recall(counts)
    return {"precision": round(100 * precision, 1), "recall": round(100 * recall, 1), "fleets": fleets}


def good_fleets() -> dict[str, dict[str, float]]:
    """Good nodes that are called lemons, in fleets of 10,000 after 26 weeks."""
    seen: dict[str, dict[str, float]] = {}
    for name, shape in (("alike", 0.0), ("differ", 4.0), ("differ_more", 2.0)):
        draw = random.Random(1)
        recipe = Recipe(outages=1200, nodes=10_000, lemons=0, days=180, shape=shape)
        wrong = sum(found(recipe, draw)["wrong"] for _ in range(10))
        seen[name] = {"nodes": 100_000, "called_lemons": wrong}
    return seen


def rank_ms() -> float:
    """The CPU time of one ranking of the largest cluster."""
    draw = random.Random(1)
    fleet = [
        a_history(n, outages=[an_outage(draw.random() * 70)] if draw.random() < 0.3 else []) for n in range(10_000)
    ]
    began = time.process_time()
    rank(fleet, NOW)
    return round(1e3 * (time.process_time() - began), 1)


if __name__ == "__main__":
    main()
