"""Whether a rank that is started again gets to know where to resume."""

from __future__ import annotations

from collections.abc import Iterator

from healthd.core.api import ANNOTATION_RECREATE, ANNOTATION_RESUME_FROM
from healthd.core.report.doctor.chart import Chart, HintPolicy, Json, Remark, RemarkLevel

VARIABLE = "HEALTHD_RESUME_FROM"


def examine(chart: Chart) -> Iterator[Remark]:
    """Which way the hint takes, and whether it arrives."""
    yield from _way(chart.hint_policy)
    for container in _containers(chart):
        own = next((each for each in container.get("env", []) if each["name"] == VARIABLE), None)
        yield from _arrives(chart, container.get("name", ""), own)


def _way(policy: HintPolicy) -> Iterator[Remark]:
    if policy is HintPolicy.NOT_SERVED:
        yield Remark(
            RemarkLevel.NOTE,
            "the API server has no MutatingAdmissionPolicy (it is older than 1.36)",
            f"the hint reaches pods as annotations of their template; {VARIABLE} only where they ask for it; and "
            "healthd was tried so on 1.34 and 1.35 with simulated nodes, never on 1.30 to 1.33",
            "see the remark about env, if there is one; or upgrade Kubernetes",
        )
    elif policy is HintPolicy.MISSING:
        yield Remark(
            RemarkLevel.RISKS,
            "the admission policy healthd-gangs is not installed",
            f"no pod gets {VARIABLE}, or is kept off bad nodes, unless its template says so",
            "kubectl apply -k deploy/",
        )


def _containers(chart: Chart) -> Iterator[Json]:
    for template in chart.templates():
        yield from template.pods.get("containers", [])


def _arrives(chart: Chart, container: str, own: Json | None) -> Iterator[Remark]:
    if own is not None and _reads_hint(own):
        return
    if own is not None:
        yield Remark(
            RemarkLevel.RISKS,
            f"container {container} sets {VARIABLE} itself",
            "what a container sets itself stays: it would resume from there for ever",
            f"take {VARIABLE} out of its env",
        )
    elif chart.hint_policy in (HintPolicy.MISSING, HintPolicy.NOT_SERVED) and not _is_made_by_healthd(chart):
        yield Remark(
            RemarkLevel.RISKS,
            f"nothing sets the resume point of container {container}",
            f"it has no {VARIABLE}, so it finds its checkpoint by itself, perhaps one that is torn",
            f"env: [{{name: {VARIABLE}, valueFrom: {{fieldRef: {{fieldPath: "
            f"\"metadata.annotations['{ANNOTATION_RESUME_FROM}']\"}}}}}}]",
        )


def _reads_hint(variable: Json) -> bool:
    path: str = variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath", "")
    return ANNOTATION_RESUME_FROM in path


def _is_made_by_healthd(chart: Chart) -> bool:
    """It writes the env itself then."""
    return chart.kind == "PodGang" and chart.meta.annotations.get(ANNOTATION_RECREATE) != "owner"
