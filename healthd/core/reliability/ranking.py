"""
Ranks machines and GPUs by how likely each is a lemon, from their histories. Pure.

The statistics are in `lemons`. Here it is decided what counts for whom, and the result is put into words.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

import msgspec

from healthd.core.api import GpuStay, MachineHistory, Outage
from healthd.core.reliability.history import hours_in_service, is_away
from healthd.core.reliability.lemons import (
    FEWEST_OUTAGES,
    Cell,
    Estimate,
    Peers,
    called,
    cell_of,
    estimate,
    fit,
    grouped,
)
from healthd.core.reliability.published import NODE_FAILURES_PER_DAY

WINDOW = timedelta(days=180)
"""Outages before that do not count: machines are repaired, and what was is kept in the history."""
FEWEST_PEERS = 20
"""With fewer of the same kind, all of the next wider kind are the peers."""
YOUNG = timedelta(days=60)
"""Younger machines have peers of their own, where there are enough."""
TOGETHER = timedelta(minutes=5)
CROWD = 5
"""So many machines that went out of service within `TOGETHER` have one common cause, and none of them is to blame."""
GPUS_A_NODE = 8
"""For the rate of a GPU before anything is known."""


class Subject(StrEnum):
    """What is ranked."""

    NODE = "node"
    GPU = "gpu"


class Standing(msgspec.Struct, frozen=True):
    """How a machine or a GPU stands among its peers. Rates are in outages a month of service."""

    subject: Subject
    machine: str
    node: str
    """Where it is now, or was last."""
    gpu: str
    """The serial number; empty for a machine."""
    slot: str
    model: str
    outages: int
    """Those that count against it."""
    hours: float
    """In service, in the time that counts."""
    rate: float
    low: float
    high: float
    """With a chance of 95 % the rate is between *low* and *high*."""
    usual: float
    """The rate of its peers."""
    probability: float
    """That it is a lemon."""
    is_lemon: bool
    reason: str
    """In plain words."""


class _Unit(NamedTuple):
    subject: Subject
    history: MachineHistory
    stay: GpuStay | None
    kind: tuple[str, ...]
    outages: Sequence[Outage]
    hours: float

    @property
    def cell(self) -> Cell:
        return cell_of(len(self.outages), self.hours / 24)


def rank(histories: Iterable[MachineHistory], now: datetime) -> list[Standing]:
    """
    All machines that the cluster has, and all their GPUs that were ever the cause of an outage: the most likely lemon
    first. Machines that are away count as peers, and are not listed.
    """
    every = list(histories)
    crowds = _crowds(every)
    counting = [_counting(history, crowds, now) for history in every]
    places = _places(every)
    nodes = [_node_unit(history, outages, places, now) for history, outages in zip(every, counting, strict=True)]
    gpus = [*_gpu_units(every, counting, places, now)]
    gpu_rate = NODE_FAILURES_PER_DAY.value / GPUS_A_NODE
    ranked = [*_ranked(nodes, NODE_FAILURES_PER_DAY.value), *_ranked(gpus, gpu_rate)]
    return sorted(ranked, key=lambda each: (not each.is_lemon, -each.probability, each.node, each.gpu))


def lemon_nodes(standings: Iterable[Standing]) -> dict[str, Standing]:
    """Node -> why it is a lemon: by itself, or for a GPU in it."""
    return {each.node: each for each in reversed([*standings]) if each.is_lemon}


# What counts for whom -------------------------------------------------------------------------------------------------


def _crowds(histories: Iterable[MachineHistory]) -> list[tuple[datetime, str]]:
    """When each machine went out, in order of time."""
    return sorted((outage.began, history.machine) for history in histories for outage in history.outages)


def _counting(history: MachineHistory, crowds: Sequence[tuple[datetime, str]], now: datetime) -> list[Outage]:
    return [
        outage
        for outage in history.outages
        if now - WINDOW < outage.began <= now and not _is_common(outage.began, crowds)
    ]


def _is_common(began: datetime, crowds: Sequence[tuple[datetime, str]]) -> bool:
    first = bisect_left(crowds, (began - TOGETHER, ""))
    last = bisect_right(crowds, (began + TOGETHER, "￿"))
    return last - first >= CROWD and len({machine for _, machine in crowds[first:last]}) >= CROWD


def _places(histories: Iterable[MachineHistory]) -> dict[str, tuple[MachineHistory, GpuStay]]:
    """GPU -> where it was seen last. A GPU that moved is still in the history of the machine that it left."""
    places: dict[str, tuple[MachineHistory, GpuStay]] = {}
    for history in histories:
        for stay in history.gpus:
            known = places.get(stay.id)
            if known is None or (stay.until is None, stay.since) > (known[1].until is None, known[1].since):
                places[stay.id] = history, stay
    return places


def _node_unit(
    history: MachineHistory,
    outages: Sequence[Outage],
    places: Mapping[str, tuple[MachineHistory, GpuStay]],
    now: datetime,
) -> _Unit:
    """Without outages of GPUs that were taken out of the machine since."""

    def is_gone(gpu: str) -> bool:
        place = places.get(gpu)
        return place is not None and (place[0].machine != history.machine or place[1].until is not None)

    own = [outage for outage in outages if not (outage.gpu and is_gone(outage.gpu))]
    age = "young" if now - history.since < YOUNG else "old"
    kind = (history.model, age)
    return _Unit(Subject.NODE, history, None, kind, own, hours_in_service(history, now - WINDOW, now))


def _gpu_units(
    histories: Sequence[MachineHistory],
    counting: Sequence[Sequence[Outage]],
    places: Mapping[str, tuple[MachineHistory, GpuStay]],
    now: datetime,
) -> Iterator[_Unit]:
    """Every GPU that is in a machine, with all that it did in any machine."""
    caused: dict[str, list[Outage]] = defaultdict(list)
    for outages in counting:
        for outage in outages:
            if outage.gpu:
                caused[outage.gpu].append(outage)
    hours: dict[str, float] = defaultdict(float)
    for history in histories:
        whole = hours_in_service(history, now - WINDOW, now)
        for stay in history.gpus:
            began, ended = _stay_of(stay, history, places, now)
            is_whole = began <= max(history.since, now - WINDOW) and ended >= now
            hours[stay.id] += whole if is_whole else hours_in_service(history, max(began, now - WINDOW), ended)
    for gpu, (history, stay) in places.items():
        if stay.until is None:
            yield _Unit(Subject.GPU, history, stay, (stay.model,), caused.get(gpu, ()), hours[gpu])


def _stay_of(
    stay: GpuStay, history: MachineHistory, places: Mapping[str, tuple[MachineHistory, GpuStay]], now: datetime
) -> tuple[datetime, datetime]:
    """From when until when: a GPU that was seen elsewhere later left no later than that."""
    place, last = places[stay.id]
    if stay.until is not None:
        return stay.since, stay.until
    return stay.since, now if place.machine == history.machine else max(stay.since, min(now, last.since))


# Ranking --------------------------------------------------------------------------------------------------------------


def _ranked(units: Sequence[_Unit], published: float) -> Iterator[Standing]:
    peers = {
        kind: fit(cells, published) for kind, cells in grouped(((u.kind, u.cell) for u in units), FEWEST_PEERS).items()
    }
    estimates: dict[tuple[tuple[str, ...], Cell], Estimate] = {}
    rows: list[tuple[_Unit, Peers, Estimate]] = []
    for unit in units:
        kind = next(unit.kind[:n] for n in range(len(unit.kind), -1, -1) if unit.kind[:n] in peers)
        key = kind, unit.cell
        if key not in estimates:
            estimates[key] = estimate(unit.cell, peers[kind])
        rows.append((unit, peers[kind], estimates[key]))
    least = called((unit.cell, judged) for unit, _, judged in rows)
    for unit, of_kind, judged in rows:
        if not is_away(unit.history) and (unit.outages or unit.subject is Subject.NODE):
            is_lemon = judged.probability >= least and len(unit.outages) >= FEWEST_OUTAGES
            yield _standing(unit, of_kind, judged, is_lemon=is_lemon)


def _standing(unit: _Unit, peers: Peers, judged: Estimate, *, is_lemon: bool) -> Standing:
    history, stay = unit.history, unit.stay
    return Standing(
        subject=unit.subject,
        machine=history.machine,
        node=history.node,
        gpu=stay.id if stay else "",
        slot=stay.slot if stay else "",
        model=stay.model if stay else history.model,
        outages=len(unit.outages),
        hours=unit.hours,
        rate=judged.rate,
        low=judged.low,
        high=judged.high,
        usual=peers.rate * 30,
        probability=judged.probability,
        is_lemon=is_lemon,
        reason=_reason(unit, peers),
    )


# Words ----------------------------------------------------------------------------------------------------------------


def _reason(unit: _Unit, peers: Peers) -> str:
    days = unit.hours / 24
    if not unit.outages:
        return f"no outage in {days:.0f} days of service"
    who = f"GPU {unit.stay.id} was the cause of" if unit.stay else ""
    count = len(unit.outages)
    usual = f"{peers.size} of its kind: {peers.rate * days:.1f} in that time"
    parts = [f"{who} {_times(count)} in {days:.0f} days of service; usual for {usual}".strip(), *_details(unit)]
    return "; ".join(parts)


def _times(count: int) -> str:
    return "1 outage" if count == 1 else f"{count} outages"


def _details(unit: _Unit) -> Iterator[str]:
    if unit.stay is not None:
        elsewhere = Counter(each.node for each in unit.outages if each.node != unit.history.node)
        yield from (f"{_times(count)} of it in {node}" for node, count in elsewhere.most_common(3))
    else:
        slots = Counter((each.slot, each.gpu) for each in unit.outages)
        (slot, gpu), count = slots.most_common(1)[0]
        if count > 1:
            yield f"{count} of them in slot {slot}" + (f" (GPU {gpu})" if gpu else "")
    rule, times = Counter(each.rule for each in unit.outages).most_common(1)[0]
    yield f"{times} times {rule}" if times > 1 else f"the last: {unit.outages[-1].rule}"
    helped = Counter(each.helped for each in unit.outages if each.helped)
    if helped:
        yield "ended by " + ", ".join(f"{name} ({number})" for name, number in helped.most_common(3))
