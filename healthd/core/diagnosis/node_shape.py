"""
What a node has at its best, and what it should therefore have now. Pure.

A part that is missing since the node booted leaves no trace in the readings: a node that lost seven of its eight
network devices reads like a node that has one. The most that any boot showed is kept in the node's `NodeHealth`, and
added to the current readings, so that rules can compare the two. Addresses may change with a boot, so missing parts are
counted and not named.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import msgspec

from healthd.core.api import Shape
from healthd.core.diagnosis.link_state import LinkState
from healthd.core.diagnosis.readings import NODE, Reading, Sample

NO_SHAPE = Shape()

_COUNTED = {"pcie.gpus": "gpus", "ib.devices": "rdma_devices", "host.memory_kb": "memory_kb"}
"""By reading of the node: the field that keeps its best value."""
_RATES = frozenset({"ib.rate", "eth.speed"})
_LINKS = {"ib.link": "ib.up_since_boot", "eth.link": "eth.up_since_boot"}
_NEVER_UP = frozenset({LinkState.UNUSED, LinkState.NEVER_UP})
_SOURCES = frozenset({"pcie", "infiniband", "infiniband-counters", "ethernet", "ethernet-counters", "host"})
_TOLERATED_MEMORY = 0.98
"""The kernel reserves a little more or less memory after each boot. A module is larger than this."""


def grown(shape: Shape, sample: Sample) -> Shape:
    """*shape*, or a better one after *sample*."""
    if sample.source not in _SOURCES:
        return shape
    better: dict[str, object] = {}
    for one, amount in _numbers(sample.readings, _COUNTED):
        if amount > getattr(shape, _COUNTED[one.name]):
            better[_COUNTED[one.name]] = int(amount)
    rates = {
        _port(one): rate for one, rate in _numbers(sample.readings, _RATES) if rate > shape.rates.get(_port(one), 0)
    }
    if rates:
        better["rates"] = {**shape.rates, **rates}
    return msgspec.structs.replace(shape, **better) if better else shape


def expecting(sample: Sample, shape: Shape) -> Sample:
    """*sample* with the expectations from *shape* added: `<reading>.before`, and what only a comparison shows."""
    if sample.source not in _SOURCES or not sample.readings or shape == NO_SHAPE:
        return sample
    return replace(sample, readings=[*sample.readings, *_expected(sample.readings, shape)])


def _expected(readings: Iterable[Reading], shape: Shape) -> Iterator[Reading]:
    for one in readings:
        if one.device == NODE and one.name in _COUNTED:
            best = getattr(shape, _COUNTED[one.name])
            least = int(best * _TOLERATED_MEMORY) if one.name == "host.memory_kb" else best
            yield Reading(NODE, f"{one.name}.before", least)
        elif _port(one) in shape.rates:
            if one.name in _RATES:
                yield Reading(one.device, f"{one.name}.before", shape.rates[_port(one)], one.part)
            elif one.name in _LINKS:
                yield Reading(one.device, _LINKS[one.name], "no" if one.value in _NEVER_UP else "yes", one.part)


def _numbers(readings: Iterable[Reading], names: Iterable[str]) -> list[tuple[Reading, float]]:
    return [(one, one.value) for one in readings if one.name in names and isinstance(one.value, int | float)]


def _port(reading: Reading) -> str:
    """RoCE ports are Ethernet ports too, and the two sources may report different rates."""
    return f"{reading.name.partition('.')[0]} {reading.device} {reading.part}"
