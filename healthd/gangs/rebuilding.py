"""
How the root of a gang that failed for good is copied, and made again from the copy. Pure.

The copy is what its owner wrote and the API server admitted: labels, annotations and spec. What a controller added for
that one object is left out, because it is refused at creation, or would tie the new object to the old one.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from healthd.core.api import (
    ANNOTATION_PLACEMENT,
    ANNOTATION_REBUILT_BY,
    ANNOTATION_REBUILT_FROM,
    ANNOTATION_STOPPED_AT,
    ANNOTATION_STOPPED_BY,
    LABEL_QUEUE,
    Condition,
    GangRef,
    ObjectMeta,
)
from healthd.core.api.root_copies import LONGEST_COPY
from healthd.core.patches import merged
from healthd.core.recovery.gang import Failure
from healthd.core.untrusted import InvalidText, shown
from healthd.gangs.manifests import packed, unpacked
from healthd.gangs.paths import matches, parse_path, patch_at, value_at

Json = dict[str, Any]

_ROOT = "root"
"""The key of the one manifest in a copy."""
_OF_ONE_OBJECT = frozenset({ANNOTATION_STOPPED_BY, ANNOTATION_STOPPED_AT, ANNOTATION_PLACEMENT})
"""Annotations that were for the object that failed."""
_MARKS_OF_A_JOB = frozenset(
    {"controller-uid", "job-name", "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"}
)
"""Labels that the API server puts on the pod template of a Job: they have its uid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildRules:
    """How the roots of one kind are made again."""

    suspend: str
    """The path to the boolean that is true while it is stopped: it is made stopped."""
    failed: tuple[str, ...] = ("Failed",)
    """The types of the conditions that say that it failed for good."""
    reasons: frozenset[str] | None = None
    """The reasons in such a condition that a broken node may be behind. Any other is its owner's own rule. None: the
    kind gives no reason that tells them apart."""
    deadlines: tuple[str, ...] = ()
    """Paths to deadlines of its owner, where the condition does not say that one has passed."""
    generated: tuple[str, ...] = ()
    """Paths to fields that the API server wrote."""


JOB = RebuildRules(
    suspend="spec.suspend",
    failed=("Failed", "FailureTarget"),
    reasons=frozenset({"BackoffLimitExceeded", "FailedIndexes", "MaxFailedIndexesExceeded"}),
    generated=("spec.selector",),
)
JOBSET = RebuildRules(
    suspend="spec.suspend",
    reasons=frozenset({"FailedJobs", "ReachedMaxRestarts"}),
    deadlines=("spec.replicatedJobs.*.template.spec.activeDeadlineSeconds",),
)
TRAINING_JOB = RebuildRules(suspend="spec.runPolicy.suspend", deadlines=("spec.runPolicy.activeDeadlineSeconds",))
"""The jobs of Kubeflow's training operator. Its only reason is the kind and `Failed`."""


def failure_of(kind: str, meta: ObjectMeta, conditions: Iterable[Condition], rules: RebuildRules | None) -> Failure:
    """How the root *meta*, whose controller says that it failed, did so. *rules* None: its kind is never made again."""
    types = rules.failed if rules else ("Failed",)
    stands = {each.type: each for each in reversed([*conditions]) if each.status == "True"}
    failed = next((stands[each] for each in types if each in stands), Condition(type="Failed"))
    if rules is None:
        return Failure(at=failed.last_transition_time, reason=failed.reason, kept=f"healthd makes no {kind} again")
    return Failure(at=failed.last_transition_time, reason=failed.reason, kept=_why_kept(meta, failed, rules))


def _why_kept(meta: ObjectMeta, failed: Condition, rules: RebuildRules) -> str:
    if rules.reasons is not None and failed.reason not in rules.reasons:
        return f"it ended by a rule of its owner ({shown(failed.reason)})"
    if meta.owner_references:
        owner = meta.owner_references[0]
        return f"{shown(owner.kind)} {shown(owner.name)} made it, and has to make it again"
    if LABEL_QUEUE in meta.labels:
        return "it is in a queue of Kueue"
    # Of a deletion of ours its finalizer has no trace yet: that root is read from its copy.
    return f"a finalizer keeps it ({shown(meta.finalizers[0])})" if meta.finalizers else ""


def copied(meta: ObjectMeta, spec: Mapping[str, Any], rules: RebuildRules) -> str:
    """The text of a copy of the root *meta* with *spec*. Raises InvalidText, which says why there can be none."""
    whole: Json = {"spec": copy.deepcopy(dict(spec))}
    for path in rules.deadlines:
        if any(value for _, value in matches(whole, parse_path(path))):
            raise InvalidText(f"it has a deadline ({path}), and healthd cannot tell whether that ended it")
    if whole["spec"].get("manualSelector"):
        raise InvalidText("its owner chose its selector (spec.manualSelector)")
    for path in rules.generated:
        _remove(whole, parse_path(path))
    labels = value_at(whole, ("spec", "template", "metadata", "labels"))
    if isinstance(labels, dict):
        for mark in _MARKS_OF_A_JOB:
            labels.pop(mark, None)
    notes = {key: value for key, value in meta.annotations.items() if key not in _OF_ONE_OBJECT}
    text = packed({_ROOT: {"metadata": {"labels": dict(meta.labels), "annotations": notes}, "spec": whole["spec"]}})
    if len(text) > LONGEST_COPY:
        raise InvalidText(f"its copy has {len(text):,} characters; healthd keeps up to {LONGEST_COPY:,}")
    return text


def made_again(text: str, gang: GangRef, recovery: str, rules: RebuildRules) -> Json:
    """
    Metadata and spec of the root to create in the place of *gang*, stopped by *recovery*. Raises InvalidText.

    It is made stopped, so it starts as any gang does that a recovery has stopped: from the checkpoint that was chosen
    for it, and with the nodes that were reserved.
    """
    manifest = read_copy(text)
    marks = {
        ANNOTATION_STOPPED_BY: recovery,
        ANNOTATION_STOPPED_AT: "1",  # the generation of an object that was just made
        ANNOTATION_REBUILT_FROM: gang.uid,
        ANNOTATION_REBUILT_BY: recovery,
    }
    metadata = {
        "name": gang.name,
        "namespace": gang.namespace,
        "labels": manifest["metadata"].get("labels", {}),
        "annotations": {**manifest["metadata"].get("annotations", {}), **marks},
    }
    spec = merged({"spec": manifest["spec"]}, patch_at(parse_path(rules.suspend), True))["spec"]
    return {"metadata": metadata, "spec": spec}


def read_copy(text: str) -> Json:
    """The manifest in the text of a copy. Raises InvalidText."""
    manifest = unpacked(text).get(_ROOT)
    if manifest is None:
        raise InvalidText("the copy has no manifest")
    return manifest


def _remove(whole: Json, path: tuple[str, ...]) -> None:
    holder = value_at(whole, path[:-1])
    if isinstance(holder, dict):
        holder.pop(path[-1], None)
