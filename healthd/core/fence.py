"""
The fence: proof that a pod of a stopped attempt can no longer write.

A Failed, deleted or force-deleted pod object proves nothing: with a dead kubelet its processes go on. Proof is the word
of a live kubelet that every container terminated or that it took none of them in, or that the node booted since, or
that the pod never got a node.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from healthd.core.gang import GangView, attempt_of, index_of, is_terminal, will_not_run
from healthd.core.objects import FINALIZER_FENCE, FencedPod, Node, Pod
from healthd.core.spares import is_ready

REJECTED = "Pod was rejected: "
"""How a kubelet's message begins for a pod that it did not admit: the GPUs are gone, or the disk is full."""


def fence_pods(view: GangView, known: Sequence[FencedPod]) -> list[FencedPod]:
    """
    *known* and every further pod that may still write, each with the proof that there is by now, as they were made.

    A proof once recorded stays, so the pod object may go afterwards.
    """
    present = {pod.metadata.uid: pod for pod in sorted(view.pods, key=_age)}
    fenced = {pod.uid: pod for pod in known}
    for uid, pod in present.items():
        if uid not in fenced and _may_write(pod, view):
            fenced[uid] = _fenced(pod, view.nodes.get(pod.spec.node_name))
    return [_with_proof(pod, present.get(pod.uid), view.nodes.get(pod.node)) for pod in fenced.values()]


def unproven(pods: Sequence[FencedPod]) -> list[str]:
    """Names of the pods without proof."""
    return [pod.name for pod in pods if not pod.proof]


def _age(pod: Pod) -> tuple[bool, str, str]:
    created = pod.metadata.creation_timestamp
    return created is not None, created.isoformat() if created else "", pod.metadata.name


def _may_write(pod: Pod, view: GangView) -> bool:
    current = view.root is not None and attempt_of(pod) == view.root.attempt
    return current or not is_terminal(pod) or FINALIZER_FENCE in pod.metadata.finalizers


def _fenced(pod: Pod, node: Node | None) -> FencedPod:
    return FencedPod(
        name=pod.metadata.name,
        uid=pod.metadata.uid,
        node=pod.spec.node_name,
        index=index_of(pod),
        boot_id=node.status.node_info.boot_id if node else "",
    )


def _with_proof(fenced: FencedPod, pod: Pod | None, node: Node | None) -> FencedPod:
    if fenced.proof:
        return fenced
    if pod is not None and pod.spec.node_name and not fenced.node:
        fenced = _fenced(pod, node)
    return replace(fenced, proof=_proof(fenced, pod, node))


def _proof(fenced: FencedPod, pod: Pod | None, node: Node | None) -> str:
    if not fenced.node:
        return "it was never bound to a node" if pod is None or will_not_run(pod) else ""
    boot_id = node.status.node_info.boot_id if node else ""
    if fenced.boot_id and boot_id and boot_id != fenced.boot_id:
        return f"{fenced.node} has booted since"
    if pod is None or node is None or not is_ready(node) or not is_terminal(pod):
        return ""
    ends = [status.state.terminated for status in pod.status.container_statuses]
    if not ends and pod.status.phase == "Failed" and pod.status.message.startswith(REJECTED):
        return f"the kubelet of {fenced.node} did not admit it"
    if not ends or any(end is None for end in ends):
        return ""
    return f"the kubelet of {fenced.node} reports every container terminated"
