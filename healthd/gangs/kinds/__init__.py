"""
The kinds of custom objects that healthd ships, and the table of all adapters with those of an operator.

A further kind is one description, here or under `gangs.kinds` in the configuration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from healthd.core.config.gang_kinds import GangsPolicy, KindDescription
from healthd.gangs import ADAPTERS
from healthd.gangs.adapter import GangAdapter
from healthd.gangs.described import DescribedAdapter
from healthd.gangs.held import HeldAdapter
from healthd.gangs.kinds.appwrapper import APPWRAPPER
from healthd.gangs.kinds.kubeflow import MPIJOB, TRAINING_JOBS
from healthd.gangs.kinds.leaderworkerset import LEADERWORKERSET
from healthd.gangs.kinds.ray import RAYCLUSTER, RAYJOB
from healthd.gangs.kinds.trainer import TRAINJOB
from healthd.gangs.kinds.volcano import VOLCANO_JOB
from healthd.gangs.kueue import KueueHolder
from healthd.gangs.pod_groups import PodGroupAdapter, PodGroupHolder
from healthd.gangs.podgang import PodGangAdapter
from healthd.gangs.rebuilding import TRAINING_JOB, RebuildRules

SHIPPED: Sequence[KindDescription] = (
    APPWRAPPER,
    TRAINJOB,
    RAYCLUSTER,
    RAYJOB,
    *TRAINING_JOBS,
    MPIJOB,
    LEADERWORKERSET,
    VOLCANO_JOB,
)
"""The topmost kinds come first: a pod belongs to the first kind whose root exists."""


def adapters_of(policy: GangsPolicy) -> Mapping[str, GangAdapter[Any]]:
    """By the kind that a recovery names: those of *policy*, those that healthd ships, and those that need no data."""
    described = [*policy.kinds, *(each for each in SHIPPED if each.name not in policy.off)]
    own = {each.name: DescribedAdapter(each, ADAPTERS.get(each.below), _rebuild_rules(each)) for each in described}
    plain = {**own, **ADAPTERS}
    held = {each.name for each in described if each.suspend} | {"Job", "JobSet"}
    queued = {name: HeldAdapter(each, KUEUE) if name in held else each for name, each in plain.items()}
    return {**queued, "PodGang": PodGroupAdapter(PodGangAdapter(), PodGroupHolder())}


def _rebuild_rules(kind: KindDescription) -> RebuildRules | None:
    """Of the jobs of the training operator. What the other kinds add to an object was not looked at."""
    return TRAINING_JOB if kind in TRAINING_JOBS else None


KUEUE = KueueHolder()
ALL = adapters_of(GangsPolicy())
"""Every kind that healthd knows without a configuration."""
