"""What each kind of root has of its own that can get in the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from healthd.core.api import ANNOTATION_CHECKPOINT, ANNOTATION_LAUNCHER, LABEL_GANG
from healthd.core.api.kubernetes.workloads import TRIAL, may_own_a_root
from healthd.core.report.doctor.chart import Chart, HintPolicy, Json, Remark, RemarkLevel, Template

NO_LIMIT = 2**31 - 1
"""What a Job's backoffLimit may be at most."""
LONG_GRACE = 120
"""Seconds. Ranks that hang in a collective do not answer SIGTERM, and a recovery waits for all of them."""
TOPOLOGY = "alpha.jobset.sigs.k8s.io/exclusive-topology"


def examine(chart: Chart) -> Iterator[Remark]:
    """The root, and each kind of pod that it makes."""
    yield from _owner(chart)
    yield from _queue(chart)
    yield from _OF_KIND.get(chart.kind, _nothing)(chart)
    for template in chart.templates():
        yield from _pods(template)
        if template.job is not None:
            yield from _job(template, template.job, chart)


def _owner(chart: Chart) -> Iterator[Remark]:
    for owner in chart.meta.owner_references:
        if owner.controller and may_own_a_root(owner):
            yield from _trial(chart, owner.kind)
        elif owner.controller:
            above = f"{owner.kind.lower()}/{owner.name}"
            yield Remark(
                RemarkLevel.PREVENTS,
                f"{chart.target} is made by {above}",
                "what is done to it is undone from above: only the topmost object can restart a gang",
                f"write the annotations on {above}",
            )


def _trial(chart: Chart, owner: str) -> Iterator[Remark]:
    """A trial of Katib: its siblings are made from the same template."""
    place = chart.meta.annotations.get(ANNOTATION_CHECKPOINT, "")
    if owner == TRIAL and place and chart.meta.name not in place:
        yield Remark(
            RemarkLevel.RISKS,
            f"{place} does not have the name of the trial in it",
            "all trials of an Experiment have the same template: one would resume from the checkpoints of another",
            "a trial parameter with the reference ${trialSpec.Name}, in the annotation and in the program's path",
        )


_PODS_AGAIN = ", and deletes that before it makes the pods again"


def _queue(chart: Chart) -> Iterator[Remark]:
    if chart.root is None or not chart.root.queue:
        return
    is_made_by_healthd = chart.kind == "PodGang"
    if chart.hint_policy in (HintPolicy.MISSING, HintPolicy.NOT_SERVED) and not is_made_by_healthd:
        yield Remark(
            RemarkLevel.PREVENTS,
            f"it is in Kueue's queue {chart.root.queue}, and the admission policy healthd-gangs is not there",
            "Kueue undoes what is written on a pod template, so new pods learn of their attempt by this policy alone",
            "Kubernetes 1.36 or newer, and kubectl apply -k deploy/",
        )
    if chart.root.unadmitted:
        yield Remark(
            RemarkLevel.NOTE,
            chart.root.unadmitted,
            "when it runs again is the affair of Kueue: healthd restarts nothing meanwhile",
            f"kubectl describe workloads -n {chart.meta.namespace}",
        )
    yield Remark(
        RemarkLevel.NOTE,
        f"it is in Kueue's queue {chart.root.queue}",
        f"healthd stops it by spec.active of its Workload{_PODS_AGAIN if is_made_by_healthd else ''}. It gives its "
        "quota back then, and waits in the queue like any other when it starts again: others may have taken the quota",
        "give it a priority that preempts what may take its quota, or let nothing borrow that quota",
    )


def _part(template: Template) -> str:
    return f" of {template.name}" if template.name else ""


def _pods(template: Template) -> Iterator[Remark]:
    grace = template.pods.get("terminationGracePeriodSeconds", 30)
    if grace > LONG_GRACE:
        yield Remark(
            RemarkLevel.RISKS,
            f"terminationGracePeriodSeconds{_part(template)} is {grace}",
            "ranks that hang do not end before that, and the gang starts again only when all have ended",
            "allow what a checkpoint at SIGTERM needs, and no more",
        )


def _job(template: Template, spec: Json, chart: Chart) -> Iterator[Remark]:
    part, members = _part(template), spec.get("parallelism", 1)
    if (restart := template.pods.get("restartPolicy")) != "Never":
        yield Remark(
            RemarkLevel.RISKS,
            f"restartPolicy{part} is {restart}",
            "a rank that fails is started again alone, in its old pod, while the others wait for it",
            "restartPolicy: Never",
        )
    if spec.get("managedBy", "kubernetes.io/job-controller") != "kubernetes.io/job-controller":
        yield Remark(
            RemarkLevel.PREVENTS,
            f"it is managed by {spec['managedBy']}",
            "healthd knows how the Job controller of Kubernetes stops and starts, and no other",
            "leave managedBy out",
        )
    yield from _backoff(part, spec, has_own_restarts=bool(chart.jobset.get("failurePolicy")))
    if (completions := spec.get("completions", members)) > members:
        yield Remark(
            RemarkLevel.PREVENTS,
            f"{completions} completions{part} with a parallelism of {members}",
            "a gang runs as a whole: its members would never all be there",
            "set both to the number of members",
        )
    if spec.get("completionMode") != "Indexed" and chart.kind == "Job":
        yield Remark(
            RemarkLevel.NOTE,
            "the Job is not Indexed",
            "its members have no numbers, so healthd cannot tell which of them was where",
            "completionMode: Indexed",
        )


def _backoff(part: str, spec: Json, *, has_own_restarts: bool) -> Iterator[Remark]:
    limit, members = spec.get("backoffLimit", 6), spec.get("parallelism", 1)
    if limit < members and not has_own_restarts:
        yield Remark(
            RemarkLevel.RISKS,
            f"backoffLimit{part} is {limit}, with {members} members",
            "when one GPU dies all ranks abort within seconds; a Job that counts so many failures before healthd has "
            "stopped it is failed for good",
            f"backoffLimit: {NO_LIMIT}; healthd gives up by itself when restarts bring no new step",
        )
    rules = spec.get("podFailurePolicy", {}).get("rules", [])
    if not any(rule.get("action") == "Ignore" and _is_of_disruption(rule) for rule in rules) and limit < NO_LIMIT:
        yield Remark(
            RemarkLevel.NOTE,
            f"no podFailurePolicy{part} ignores disruptions",
            "pods that are drained, preempted or evicted use up the retries",
            "podFailurePolicy: {rules: [{action: Ignore, onPodConditions: [{type: DisruptionTarget}]}]}",
        )
    if not rules and spec.get("podReplacementPolicy") != "Failed":
        yield Remark(
            RemarkLevel.NOTE,
            f"podReplacementPolicy{part} is not Failed",
            "a new pod may start while the old one of the same rank is still ending",
            "podReplacementPolicy: Failed",
        )


def _is_of_disruption(rule: Json) -> bool:
    return any(condition.get("type") == "DisruptionTarget" for condition in rule.get("onPodConditions", []))


def _jobset(chart: Chart) -> Iterator[Remark]:
    if topology := chart.meta.annotations.get(TOPOLOGY):
        yield Remark(
            RemarkLevel.RISKS,
            f"each of its Jobs is alone in its {topology}",
            "a spare helps only inside a domain that has room for the whole Job",
            "keep spares in every domain",
        )


def _stateful_set(chart: Chart) -> Iterator[Remark]:
    if chart.spec.get("podManagementPolicy", "OrderedReady") != "Parallel":
        yield Remark(
            RemarkLevel.RISKS,
            "podManagementPolicy is OrderedReady",
            "pods are started one by one, and ranks that wait for each other before they are ready never are",
            "podManagementPolicy: Parallel (make the StatefulSet anew: it cannot be changed)",
        )
    if chart.spec.get("persistentVolumeClaimRetentionPolicy", {}).get("whenScaled") == "Delete":
        yield Remark(
            RemarkLevel.PREVENTS,
            "its volumes are deleted when it is scaled down",
            "stopping it would delete them, and perhaps the checkpoints: healthd leaves it alone",
            "persistentVolumeClaimRetentionPolicy: {whenScaled: Retain}",
        )
    yield from _launcher(chart)


def _launcher(chart: Chart) -> Iterator[Remark]:
    name = chart.meta.annotations.get(ANNOTATION_LAUNCHER)
    if name is None:
        yield Remark(
            RemarkLevel.NOTE,
            "it has no launcher",
            "a StatefulSet never ends: healthd keeps it going until it is deleted or scaled to 0",
            f"name the Job that starts the work: {chart.annotate} {ANNOTATION_LAUNCHER}=NAME",
        )
        return
    if chart.launcher is None:
        yield Remark(
            RemarkLevel.PREVENTS,
            f"there is no Job {name}, which {ANNOTATION_LAUNCHER} names",
            "the launcher would go on beside workers that were started again",
            "correct the annotation, or make the Job",
        )
        return
    labels = chart.launcher["spec"].get("template", {}).get("metadata", {}).get("labels", {})
    if labels.get(LABEL_GANG) != chart.meta.name:
        yield Remark(
            RemarkLevel.PREVENTS,
            f"the pods of job/{name} do not carry the label {LABEL_GANG}: {chart.meta.name}",
            "healthd does not know them for members, and would not wait for their end",
            f"add the label to the pod template of job/{name}",
        )


def _plain_pods(chart: Chart) -> Iterator[Remark]:
    if any(owner.controller for pod in chart.pods for owner in pod.metadata.owner_references):
        yield Remark(
            RemarkLevel.RISKS,
            "some pods with the label have a controller",
            "they belong to the root above them, and are no members of this gang",
            f"take the label {LABEL_GANG} off, or look at that root: healthd doctor job/NAME",
        )


def _nothing(chart: Chart) -> Iterator[Remark]:  # noqa: ARG001 - the shape of a look at a kind
    return iter(())


_OF_KIND: Mapping[str, Callable[[Chart], Iterator[Remark]]] = {
    "Job": _nothing,
    "JobSet": _jobset,
    "StatefulSet": _stateful_set,
    "PodGang": _plain_pods,
}
