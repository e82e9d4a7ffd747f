"""What the doctor reads of a gang whose kind is described by data."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from healthd.cluster.port import Forbidden, NotFound, Reader
from healthd.core.api import JobSetManifest, ObjectMeta, PodSpec
from healthd.core.config.gang_kinds import KindDescription
from healthd.core.report.doctor import Chart, FoundTrap
from healthd.core.report.doctor.chart import Template
from healthd.core.untrusted import InvalidText
from healthd.gangs.kinds.components import COMPONENTS
from healthd.gangs.kueue import queue_trouble
from healthd.gangs.parts import templates
from healthd.gangs.traps import found_traps

Json = Mapping[str, Any]


async def with_description(cluster: Reader, chart: Chart, kind: KindDescription, status: Json) -> Chart:
    """*chart* with what only the description of its *kind* tells. Raises ClusterError."""
    traps = tuple(found_traps(kind, {"spec": chart.spec, "status": status}))
    elsewhere = _said_elsewhere(chart.meta, traps)
    return dataclasses.replace(
        chart,
        description=kind,
        component=COMPONENTS.get(kind.name, ""),
        traps=traps,
        invalid=tuple(why for why in chart.invalid if why not in elsewhere),
        parts=tuple(_parts(kind, chart.spec)),
        below=await _below(cluster, kind, chart.meta),
    )


def _said_elsewhere(meta: ObjectMeta, traps: Sequence[FoundTrap]) -> Collection[str]:
    """What makes the root invalid, and has a remark of its own."""
    return {*(f"{found.trap.why}; {found.trap.remedy}" for found in traps), *queue_trouble(meta)}


def _parts(kind: KindDescription, spec: Json) -> Iterator[Template]:
    """The pod templates that can be read; the others make the root invalid."""
    try:
        found = list(templates(kind, {"spec": spec}))
    except InvalidText:
        return
    for template in found:
        try:
            msgspec.convert(template.get("spec"), PodSpec)
            msgspec.convert(template.get("metadata") or {}, ObjectMeta)
        except (msgspec.ValidationError, RecursionError):
            continue
        yield Template(name="", meta=template.get("metadata") or {}, pods=template["spec"])


async def _below(cluster: Reader, kind: KindDescription, meta: ObjectMeta) -> Json | None:
    """The spec of the JobSet that it made under its own name."""
    if kind.below != "JobSet":
        return None
    try:
        made = await cluster.get(JobSetManifest, meta.name, meta.namespace)
    except (NotFound, Forbidden):
        return None
    return made.spec if any(owner.uid == meta.uid for owner in made.metadata.owner_references) else None
