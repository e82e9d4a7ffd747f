"""What the controller's account has to be granted for this gang, beyond what it has for every gang."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from healthd.core.api import ANNOTATION_CHECKPOINT, ANNOTATION_REBUILD, ANNOTATION_RECREATE, Pod
from healthd.core.api.locations import VOLUMES_AT, is_below, parts_of
from healthd.core.api.names import SYSTEM_NAMESPACE
from healthd.core.config import CheckpointsPolicy
from healthd.core.config.gang_kinds import VERBS
from healthd.core.phrases import some
from healthd.core.report.doctor.chart import Chart, Remark, RemarkLevel, Right, VerifierPod

ACCOUNT = f"system:serviceaccount:{SYSTEM_NAMESPACE}:healthd-controller"
"""As whom the controller of `deploy/` speaks to the API server. The admission policies name it, too."""
GROUPS = ("system:serviceaccounts", f"system:serviceaccounts:{SYSTEM_NAMESPACE}", "system:authenticated")
"""That the API server gives every such account."""
CONTROLLER = {"app.kubernetes.io/name": "healthd", "app.kubernetes.io/component": "controller"}
"""Labels of its pods."""
_HELD = "with no checkpoint that was seen to load, a stopped gang is held until a person decides"


def needed(chart: Chart) -> list[Right]:
    """What has to be asked about *chart*."""
    to_verify = (right for one in chart.verifiers or () for right in _to_verify(chart, one))
    return [*_for_kind(chart), *_for_queue(chart), *_for_plain_pods(chart), *_for_rebuild(chart), *to_verify]


def examine(chart: Chart) -> Iterator[Remark]:
    """No remarks on what was not asked."""
    yield from _kind(chart)
    yield from _queue(chart)
    yield from _plain_pods(chart)
    yield from _rebuild(chart)
    yield from _verifiers(chart)


def verifiers_of(
    location: str, namespace: str, controllers: Sequence[Pod], policy: CheckpointsPolicy | None
) -> tuple[VerifierPod, ...] | None:
    """
    What would verify checkpoints at *location* of a gang of *namespace*; None where no pod has to.

    *controllers* are the pods of the controller, and *policy* its own; None: not known. During an upgrade there may be
    two images; where there is no pod of it and no image is named, none is known.
    """
    known, url = policy or CheckpointsPolicy(), parts_of(location)
    if not known.verifier or url.scheme != "pvc" or not url.netloc:
        return None
    volume = f"{VOLUMES_AT}/{namespace}/{url.netloc}"
    containers = [pod.spec.containers[0] for pod in controllers if pod.spec.containers]
    if any(is_below(volume, mount.mount_path) for each in containers for mount in each.volume_mounts):
        return None
    images = {known.verifier_image} if known.verifier_image else {each.image for each in containers}
    return tuple(VerifierPod(image, is_certain=policy is not None) for image in sorted(images - {""}))


def _for_kind(chart: Chart) -> list[Right]:
    """Of the whole cluster: the controller watches the kind in all namespaces, or not at all."""
    if chart.description is None:
        return []
    group = chart.description.api_version.partition("/")[0]
    return [_right(verb, chart.description.plural, group) for verb in chart.description.verbs]


def _right(verb: str, plural: str, group: str) -> Right:
    """*verb* may be that of a subresource, `patch/status`."""
    does, slash, subresource = verb.partition("/")
    return Right(does, f"{plural}{slash}{subresource}", group)


def _kind(chart: Chart) -> Iterator[Remark]:
    rights = _for_kind(chart)
    if missing := _refused(chart, rights):
        yield Remark(
            RemarkLevel.PREVENTS,
            f"the controller may not guard gangs of the kind {chart.kind}",
            f"the cluster has the kind, and the controller lacks the right to {some(missing)}, so it never stops one",
            _grant_kind(chart.component, rights[0]),
        )
    elif _is_unknown(chart, rights):
        yield _not_known(f"guard gangs of the kind {chart.kind}", f"patch {rights[0].resource}.{rights[0].group} -A")


def _for_queue(chart: Chart) -> list[Right]:
    """Of the whole cluster, too."""
    if chart.root is None or not chart.root.queue:
        return []
    verbs = (*VERBS, "delete") if chart.kind == "PodGang" else VERBS
    return [Right(verb, "workloads", "kueue.x-k8s.io") for verb in verbs]


def _queue(chart: Chart) -> Iterator[Remark]:
    rights = _for_queue(chart)
    if missing := _refused(chart, rights):
        yield Remark(
            RemarkLevel.PREVENTS,
            "the controller may not stop gangs in a queue of Kueue",
            f"it is stopped by its Workload, and the controller lacks the right to {some(missing)}",
            _grant_kind("kueue", rights[0]),
        )
    elif _is_unknown(chart, rights):
        yield _not_known("stop gangs in a queue of Kueue", "patch workloads.kueue.x-k8s.io -A")


def _grant_kind(component: str, right: Right) -> str:
    if component:
        return f"add deploy/components/{component} to the kustomization that installs healthd, and apply it again"
    what = f"{', '.join(VERBS)} {right.resource}.{right.group}"
    return f"let the ServiceAccount healthd-controller {what}, by a ClusterRole and a ClusterRoleBinding"


def _for_plain_pods(chart: Chart) -> list[Right]:
    if chart.kind != "PodGang":
        return []
    where = chart.meta.namespace
    rights = [Right(verb, "podgangs", "healthd.dev", where) for verb in ("create", "patch")]
    if chart.meta.annotations.get(ANNOTATION_RECREATE) != "owner":
        rights += [Right("remake", "podgangs", "healthd.dev", where), Right("create", "pods", namespace=where)]
    return rights


def _plain_pods(chart: Chart) -> Iterator[Remark]:
    rights, where = _for_plain_pods(chart), chart.meta.namespace
    if missing := _refused(chart, rights):
        yield Remark(
            RemarkLevel.PREVENTS,
            f"the controller may not guard plain pods in {where}",
            f"it lacks the right to {some(missing)}, so it remembers none of these pods, and never stops them",
            f"kubectl create rolebinding healthd-plain-pods -n {where} --clusterrole healthd-controller-plain-pods "
            f"--serviceaccount {SYSTEM_NAMESPACE}:healthd-controller",
        )
    elif _is_unknown(chart, rights):
        yield _not_known(f"guard plain pods in {where}", f"create podgangs.healthd.dev -n {where}")


def rebuilt_as(chart: Chart) -> tuple[str, str] | None:
    """The resource and group of a root that healthd makes again when it failed for good; None: it does not."""
    if chart.description is None:
        return {"Job": ("jobs", "batch"), "JobSet": ("jobsets", "jobset.x-k8s.io")}.get(chart.kind)
    group, _, version = chart.description.api_version.partition("/")
    return (chart.description.plural, group) if (group, version) == ("kubeflow.org", "v1") else None


def _for_rebuild(chart: Chart) -> list[Right]:
    found = rebuilt_as(chart)
    if found is None or chart.meta.annotations.get(ANNOTATION_REBUILD) != "enabled":
        return []
    where = chart.meta.namespace
    own = Right("rebuild", "rootcopies", "healthd.dev", where)
    return [own, *(Right(verb, *found, namespace=where) for verb in ("create", "delete"))]


def _rebuild(chart: Chart) -> Iterator[Remark]:
    rights, where = _for_rebuild(chart), chart.meta.namespace
    if missing := _refused(chart, rights):
        yield Remark(
            RemarkLevel.RISKS,
            f"the controller may not make gangs of {where} again",
            f"{ANNOTATION_REBUILD} asks for it, and it lacks the right to {some(missing)}: a gang that failed for good "
            "stays so",
            f"kubectl create rolebinding healthd-rebuild -n {where} --clusterrole healthd-controller-rebuild "
            f"--serviceaccount {SYSTEM_NAMESPACE}:healthd-controller",
        )
    elif _is_unknown(chart, rights):
        yield _not_known(f"make gangs of {where} again", f"rebuild rootcopies.healthd.dev -n {where}")


def _to_verify(chart: Chart, verifier: VerifierPod) -> list[Right]:
    """The image is no object, and so of no namespace: the admission policy asks for it in this way."""
    run = Right("run", "verifierimages", "healthd.dev", name=verifier.image)
    return [run, Right("create", "pods", namespace=chart.meta.namespace)]


def _verifiers(chart: Chart) -> Iterator[Remark]:
    location = chart.meta.annotations.get(ANNOTATION_CHECKPOINT, "")
    for verifier in chart.verifiers or ():
        rights = _to_verify(chart, verifier)
        if missing := _refused(chart, rights):
            more = "" if verifier.is_certain else "; its configuration (--config) may name another image"
            yield Remark(
                RemarkLevel.PREVENTS if verifier.is_certain else RemarkLevel.RISKS,
                f"the controller may not run {verifier.image} to verify {location}",
                f"it lacks the right to {some(missing)}, so the pod that mounts the claim is refused{more}; {_HELD}",
                _grant(rights, missing),
            )
        elif _is_unknown(chart, rights):
            question = f"run verifierimages.healthd.dev/{verifier.image}"
            yield _not_known(f"run {verifier.image} to verify {location}", question)
    if chart.verifiers == ():
        yield Remark(
            RemarkLevel.NOTE,
            f"which image would verify {location} is not known",
            f"no pod of the controller is to be seen in {SYSTEM_NAMESPACE}; it needs the right to run its image",
            "let the controller run, or ask somebody who may list its pods",
        )


def _grant(rights: list[Right], missing: list[str]) -> str:
    if len(missing) == len(rights) or missing == [str(rights[1])]:
        return "kubectl apply -k deploy/: the ClusterRole healthd-controller-verifier is to be bound to the controller"
    return (
        "add `transformers: [../deploy/verifier-image]` to the kustomization that sets the image of healthd, and apply "
        "it again; an image of checkpoints.verifier_image is to be named in the ClusterRole healthd-controller-verifier"
    )


def _refused(chart: Chart, rights: list[Right]) -> list[str]:
    return [str(right) for right in rights if chart.rights.get(right) is False]


def _is_unknown(chart: Chart, rights: list[Right]) -> bool:
    return any(right in chart.rights and chart.rights[right] is None for right in rights)


def _not_known(what: str, question: str) -> Remark:
    return Remark(
        RemarkLevel.NOTE,
        f"whether the controller may {what} is not known",
        "you may not ask the API server about the rights of others (create subjectaccessreviews, or in a namespace "
        "localsubjectaccessreviews)",
        f"let somebody ask who may: kubectl auth can-i {question} --as {ACCOUNT}",
    )
