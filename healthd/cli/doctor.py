"""`healthd doctor KIND/NAME`: say what stands in the way of a recovery, before anything has broken."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import random
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from healthd.cli.config import load
from healthd.cli.doctor_rights import ask_about, find_verifiers
from healthd.cli.errors import UserError
from healthd.cli.target import cluster as target_cluster
from healthd.clock import SystemClock
from healthd.cluster.port import Cluster, ClusterError, Forbidden, NotFound, Reader
from healthd.cluster.remote import connect
from healthd.controller.checkpoints.declaration import why_no_format
from healthd.core.api import (
    ANNOTATION_CHECKPOINT,
    ANNOTATION_CHECKPOINT_FORMAT,
    ANNOTATION_LAUNCHER,
    LABEL_GANG,
    JobManifest,
    JobSetManifest,
    MutatingAdmissionPolicy,
    Node,
    NodeHealth,
    ObjectMeta,
    Pod,
    PodManifest,
    StatefulSetManifest,
)
from healthd.core.api.locations import VOLUMES_AT, allowed_in
from healthd.core.config import CheckpointsPolicy, Config
from healthd.core.recovery.gang import Root
from healthd.core.recovery.recovery_status import kind_named
from healthd.core.report.doctor import Chart, HintPolicy, Remark, RemarkLevel, examine
from healthd.core.report.doctor.rights import needed
from healthd.gangs import ADAPTERS
from healthd.gangs.annotations import metadata_of_root
from healthd.gangs.manifests import remembered

POLICY = "healthd-gangs"
"""The MutatingAdmissionPolicy that adds the hint to new pods."""
WIDTH = 100

EPILOG = """\
exit codes: 0 nothing prevents a recovery, 1 something does

examples:
  healthd doctor job/llama -n research
  healthd doctor pods/llama --json
"""

KINDS: Mapping[str, tuple[str, type[JobManifest | JobSetManifest | StatefulSetManifest | PodManifest]]] = {
    "job": ("Job", JobManifest),
    "jobset": ("JobSet", JobSetManifest),
    "statefulset": ("StatefulSet", StatefulSetManifest),
    "podgang": ("PodGang", PodManifest),
}
"""healthd's name of each kind, and how its complete object is read."""


class DoctorTarget(NamedTuple):
    """The gang that is asked about."""

    kind: str
    manifest: type[Any]
    name: str
    namespace: str
    text: str
    """As the user wrote it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `healthd doctor`."""
    parser.epilog = EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "target", metavar="KIND/NAME", help="job, jobset or statefulset; pods/GANG for plain pods with that label"
    )
    parser.add_argument("-n", "--namespace", default="", metavar="NAME", help="where it is (default: as kubectl's)")
    parser.add_argument("--config", type=Path, metavar="FILE", help="the controller's configuration file")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    target_cluster.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Exit code 1 when something prevents a recovery."""
    try:
        target = parse_target(args.target, target_cluster.namespace(args))
        chart = asyncio.run(_visit(args, target, load(args.config) if args.config else None))
    except ClusterError as error:
        raise UserError(str(error)) from None
    remarks = examine(chart)
    print(as_json(target, remarks) if args.json else as_text(target, remarks))
    return int(any(remark.level is RemarkLevel.PREVENTS for remark in remarks))


def parse_target(text: str, namespace: str) -> DoctorTarget:
    """KIND/NAME as a user writes it. Raises UserError."""
    spelt, slash, name = text.partition("/")
    if not (slash and name) or kind_named(spelt) not in KINDS:
        raise UserError(f"{text!r}: write job/NAME, jobset/NAME, statefulset/NAME or pods/GANG")
    kind, manifest = KINDS[kind_named(spelt)]
    return DoctorTarget(kind, manifest, name, namespace, text)


async def _visit(args: argparse.Namespace, target: DoctorTarget, config: Config | None) -> Chart:
    clock = SystemClock()
    async with connect(target_cluster.connection(args, clock), clock=clock, jitter=random.random) as cluster:
        return dataclasses.replace(await read_chart(cluster, target, config), now=clock.now())


async def read_chart(cluster: Cluster, target: DoctorTarget, config: Config | None = None) -> Chart:
    """
    Everything that *cluster* shows of the gang; what may not be looked at is left out. *config* is the controller's;
    None: not known, and the defaults are taken for it. Raises ClusterError.
    """
    meta, spec, labelled = await _whole(cluster, target)
    launcher = meta.annotations.get(ANNOTATION_LAUNCHER) if target.kind == "StatefulSet" else None
    root = await _root(cluster, target)
    location = meta.annotations.get(ANNOTATION_CHECKPOINT, "")
    checkpoints = config.checkpoints if config else None
    chart = Chart(
        kind=target.kind,
        meta=meta,
        spec=spec,
        root=root,
        invalid=(root or metadata_of_root(target.kind, meta)).invalid,
        launcher=await _launcher(cluster, launcher, target.namespace) if launcher else None,
        pods=labelled or await _members(cluster, target),
        nodes={node.metadata.name: node for node in await _seen(cluster, Node)},
        health={report.metadata.name: report for report in await _seen(cluster, NodeHealth)},
        hint_policy=await _hint_policy(cluster),
        format_trouble=why_no_format(meta.annotations.get(ANNOTATION_CHECKPOINT_FORMAT, "")),
        policy=(config or Config()).recovery,
        readable=_readable(checkpoints, target.namespace) if checkpoints else None,
        verifiers=await find_verifiers(cluster, location, target.namespace, checkpoints),
    )
    return dataclasses.replace(chart, rights=await ask_about(cluster, needed(chart)))


def _readable(policy: CheckpointsPolicy, namespace: str) -> tuple[str, ...]:
    return (f"{VOLUMES_AT}/{namespace}", *allowed_in(namespace, policy.allowed))


async def _whole(cluster: Reader, target: DoctorTarget) -> tuple[ObjectMeta, dict[str, Any], tuple[Pod, ...]]:
    """The root as it was written. For plain pods, one made from what their owner wrote on them."""
    if target.kind != "PodGang":
        try:
            manifest = await cluster.get(target.manifest, target.name, target.namespace)
        except NotFound:
            raise UserError(f"there is no {target.text} in namespace {target.namespace}") from None
        return manifest.metadata, manifest.spec, ()
    labels = {LABEL_GANG: target.name}
    pods = (await cluster.list(PodManifest, namespace=target.namespace, labels=labels)).items
    if not pods:
        raise UserError(f"no pod in namespace {target.namespace} carries the label {LABEL_GANG}={target.name}")
    notes = {key: value for pod in pods for key, value in remembered(pod)["metadata"]["annotations"].items()}
    meta = ObjectMeta(name=target.name, namespace=target.namespace, annotations=notes)
    slim = (await cluster.list(Pod, namespace=target.namespace, labels=labels)).items
    return meta, {"pods": [remembered(pod) for pod in pods]}, tuple(slim)


async def _root(cluster: Reader, target: DoctorTarget) -> Root | None:
    adapter = ADAPTERS[target.kind]
    try:
        root = adapter.read(await cluster.get(adapter.kind, target.name, target.namespace))
    except NotFound:
        return None
    return await adapter.complete(cluster, root) if root is not None else None


async def _launcher(cluster: Reader, name: str, namespace: str) -> Mapping[str, Any] | None:
    try:
        return {"spec": (await cluster.get(JobManifest, name, namespace)).spec}
    except NotFound:
        return None


async def _members(cluster: Reader, target: DoctorTarget) -> tuple[Pod, ...]:
    adapter = ADAPTERS[target.kind]
    labels = adapter.pod_labels(target.name)
    listed = (await cluster.list(Pod, namespace=target.namespace, labels=labels)).items
    return tuple(pod for pod in listed if adapter.root_name(pod) == target.name)


async def _seen(cluster: Reader, kind: type[Any]) -> list[Any]:
    try:
        return (await cluster.list(kind)).items
    except (NotFound, Forbidden):
        return []


async def _hint_policy(cluster: Reader) -> HintPolicy:
    try:
        listed = (await cluster.list(MutatingAdmissionPolicy)).items
    except NotFound:
        return HintPolicy.NOT_SERVED
    except Forbidden:
        return HintPolicy.UNKNOWN
    there = any(policy.metadata.name == POLICY for policy in listed)
    return HintPolicy.INSTALLED if there else HintPolicy.MISSING


def as_json(target: DoctorTarget, remarks: Sequence[Remark]) -> str:
    """For programs."""
    listed = [msgspec.to_builtins(remark) for remark in remarks]
    return json.dumps({"target": target.text, "namespace": target.namespace, "remarks": listed})


def as_text(target: DoctorTarget, remarks: Sequence[Remark]) -> str:
    """For people."""
    prevents = sum(remark.level is RemarkLevel.PREVENTS for remark in remarks)
    gang = f"{target.text} in {target.namespace}"
    if prevents:
        verdict = f"{gang}: healthd cannot recover it"
    elif any(remark.level is RemarkLevel.RISKS for remark in remarks):
        verdict = f"{gang}: healthd can recover it, with risks"
    else:
        verdict = f"{gang}: nothing stands in the way of a recovery"
    return "\n\n".join([verdict, *map(_paragraph, remarks)])


def _paragraph(remark: Remark) -> str:
    indent = " " * 10
    lines = [
        f"{remark.level.upper():10}{remark.what}",
        *textwrap.wrap(remark.why, WIDTH, initial_indent=indent, subsequent_indent=indent),
        # On one line, however long: users copy it.
        f"{indent}do: {remark.remedy}",
    ]
    return "\n".join(lines)
