"""What a kind that is described by data has of its own that can get in the way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from healthd.core.api import LABEL_GANG
from healthd.core.report.doctor.chart import Chart, FoundTrap, HintPolicy, Remark, RemarkLevel


def examine(chart: Chart) -> Iterator[Remark]:
    """Nothing of the other kinds."""
    if chart.description is None:
        return
    yield from map(_trap, chart.traps)
    yield from _launcher(chart)
    if not (chart.description.bound_by_name or any(pods.template for pods in chart.description.pods)):
        yield from _unmarked(chart)
    if not chart.description.succeeded:
        yield Remark(
            RemarkLevel.NOTE,
            f"a {chart.kind} never ends",
            "healthd keeps it going until it is deleted or stopped, also when its program has nothing left to do",
            "delete it, or take the annotation off, when the training is over",
        )


def _trap(found: FoundTrap) -> Remark:
    level = RemarkLevel.PREVENTS if found.trap.prevents else RemarkLevel.RISKS
    return Remark(level, found.what, found.trap.why, found.trap.remedy)


def _launcher(chart: Chart) -> Iterator[Remark]:
    """A description cannot tell a limit of 0 from one that is left out, which is 6."""
    policy = chart.spec.get("runPolicy")
    if chart.kind == "MPIJob" and isinstance(policy, Mapping) and policy.get("backoffLimit") == 0:
        yield Remark(
            RemarkLevel.RISKS,
            "runPolicy.backoffLimit is 0",
            "when a worker dies its launcher fails, too, and one failure is the end of such an MPIJob, often before "
            "healthd has stopped it",
            "runPolicy: {backoffLimit: 3}; healthd's own restarts do not count",
        )


def _unmarked(chart: Chart) -> Iterator[Remark]:
    """Its templates cannot be changed while it is stopped, so the label on its pods is the only way of the hint."""
    labels = [pod.metadata.labels for pod in chart.pods]
    labels = labels or [each.meta.get("labels") or {} for each in chart.templates()]
    if labels and chart.hint_policy is not HintPolicy.NOT_SERVED and not all(LABEL_GANG in each for each in labels):
        yield Remark(
            RemarkLevel.RISKS,
            f"its pods do not carry the label {LABEL_GANG}",
            f"healthd cannot write the hint on the pod templates of a {chart.kind}, and the admission policy knows the "
            "pods by this label: they would start without a resume point, also on bad nodes",
            f"labels: {{{LABEL_GANG}: {chart.meta.name}}} on the pod templates",
        )
