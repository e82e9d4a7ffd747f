"""A spares plan in words. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from healthd.core.reliability.fleet_rates import Rate
from healthd.core.reliability.spares_plan import Fleet, Option, Plan


class Planned(NamedTuple):
    """The plan of one kind of node, and what it was made from."""

    model: str
    """Empty where the fleet was given by options."""
    fleet: Fleet
    failures: Rate
    repair_hours: Rate
    has: int | None
    """Spares that there are, free and claimed; None: not known."""
    shortage: float
    plan: Plan


def plan_lines(planned: Planned) -> Iterator[str]:
    """The plan for a person."""
    fleet = planned.fleet
    kind = f" of {planned.model}" if planned.model else f" of {_gpus(fleet.gpus)}"
    yield f"{fleet.nodes} nodes{kind} that must work"
    yield f"  failures  {fleet.failures:.3g} of a node in a month; {planned.failures.source}"
    crews = f", {fleet.crews} at a time" if fleet.crews else ""
    yield f"  repair    {fleet.repair_hours:.3g} h{crews}; {planned.repair_hours.source}"
    yield ""
    wanted = planned.plan.wanted
    if wanted is None:
        yield "No number of spares is enough: repairs cannot keep up with failures."
        return
    yield f"  {'SPARES':>6}  {'SHORT OF TIME':>13}  {'FAILURES THAT WAIT':>18}  {'GPU-HOURS LOST/MONTH':>20}"
    for option in planned.plan.options:
        mark = ">" if option.spares == wanted.spares else " "
        yield (
            f"{mark} {option.spares:>6}  {_percent(option.shortage):>13}  {_percent(option.refused):>18}"
            f"  {option.lost_gpu_hours:>20,.1f}"
        )
    yield ""
    yield from _answer(planned, wanted)


def _answer(planned: Planned, wanted: Option) -> Iterator[str]:
    spares = "1 spare" if wanted.spares == 1 else f"{wanted.spares} spares"
    asked = f"asked for: at most {_percent(planned.shortage)}"
    yield f"{spares}: a node is then missing for {_percent(wanted.shortage)} of the time ({asked})."
    yield f"One more saves {planned.plan.next_is_worth:,.1f} GPU-hours a month."
    if planned.has is not None and planned.has != wanted.spares:
        missing = wanted.spares - planned.has
        yield f"There are {planned.has}: {missing} too few." if missing > 0 else f"There are {planned.has}."


def as_object(planned: Planned) -> dict[str, object]:
    """The plan for programs. Shares are between 0 and 1."""
    plan = planned.plan
    return {
        "model": planned.model,
        "nodes": planned.fleet.nodes,
        "gpusPerNode": planned.fleet.gpus,
        "failuresPerNodeMonth": planned.failures._asdict(),
        "repairHours": planned.repair_hours._asdict(),
        "shortage": planned.shortage,
        "has": planned.has,
        "wanted": plan.wanted.spares if plan.wanted else None,
        "nextIsWorthGpuHoursPerMonth": plan.next_is_worth,
        "options": [option._asdict() for option in plan.options],
    }


def _gpus(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count} GPUs"


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 0.0995 else f"{100 * share:.0f} %"
