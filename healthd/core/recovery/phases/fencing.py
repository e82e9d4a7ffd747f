"""
The Fencing phase: lasts until each old member is proven unable to write, or a person confirms that.

Where the root's controller counts ended pods, it also lasts until they are gone: at the start it would take one that
its kubelet has not removed yet for a failed member, and the gang as a whole for failed.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from healthd.core.api import ANNOTATION_FENCE_OVERRIDE, FINALIZER_FENCE, FencedPod, FenceOverride, Pod
from healthd.core.api.model import Phase
from healthd.core.phrases import some
from healthd.core.recovery.actions import ReleasePods, RemovePods
from healthd.core.recovery.fence import overridden, unproven, unused_power_offs
from healthd.core.recovery.members import index_of, will_not_run
from healthd.core.recovery.phases.stopping import OVERDUE, has_kubelet, is_overdue, with_latecomers
from healthd.core.recovery.rebuilding import is_being_rebuilt, remade
from healthd.core.recovery.situation import Decision, Situation, began


def fencing(s: Situation) -> Decision:
    """Lasts until every end is proven and recorded, and every pod may be removed."""
    pods = with_latecomers(s)
    if pods != s.status.pods:
        return Decision(record=replace(s.status, pods=pods), reason="one more end is proven")
    if open_ends := unproven(pods, s.terms):
        return _overridden(s) or _without_proof(s, open_ends)
    held = [p.metadata.name for p in s.view.pods if FINALIZER_FENCE in p.metadata.finalizers]
    if held:
        return Decision(actions=(ReleasePods(tuple(held)),), reason="their ends are on record")
    left = [p.metadata.name for p in s.view.pods if not will_not_run(p)]
    if left:
        return Decision(actions=(RemovePods(tuple(left)),), reason="their ends are proven, and no kubelet will say so")
    is_rebuilt = is_being_rebuilt(s.status)
    if (is_rebuilt or s.root.counts_ended_pods) and (waits := _until_removed(s, is_rebuilt=is_rebuilt)):
        return waits
    return remade(s) if is_rebuilt else s.enter(Phase.CHOOSING, _gone(s, pods))


def _until_removed(s: Situation, *, is_rebuilt: bool) -> Decision | None:
    """Wait for the kubelets to remove the pods that are being deleted; those that no kubelet removes go at once."""
    leaving = [pod for pod in s.view.pods if pod.metadata.deletion_timestamp is not None]
    if forsaken := tuple(pod.metadata.name for pod in leaving if _is_forsaken(pod, s)):
        return Decision(actions=(RemovePods(forsaken),), reason="their ends are proven, and no kubelet removes them")
    if not leaving:
        return None
    names = some([s.terms.named(pod.metadata.name, index_of(pod, s.root)) for pod in leaving])
    kind = s.root.ref.kind
    why = f"the failed {kind} goes after it" if is_rebuilt else f"a {kind} that starts before that counts it as failed"
    message = f"waiting until {names} is removed: {why}"
    if s.now - began(s, Phase.FENCING) >= OVERDUE:
        return s.hold(message)
    return Decision(reason=message, recheck=OVERDUE)


def _is_forsaken(pod: Pod, s: Situation) -> bool:
    """Its kubelet will not remove it. Without a grace period that was done already, and a finalizer keeps it."""
    is_forced = pod.metadata.deletion_grace_period_seconds == 0
    return not is_forced and (is_overdue(pod, s.now) or not has_kubelet(s, pod.spec.node_name))


def _overridden(s: Situation) -> Decision | None:
    """A person confirms the end of old pods. That is about what the person saw then: it does not count for the next
    attempt."""
    said = s.recovery.metadata.annotations.get(ANNOTATION_FENCE_OVERRIDE, "")
    used = s.status.fence_override
    if used is not None and used.said == said and used.attempt != s.status.attempt:
        return None
    pods = overridden(s.status.pods, said)
    if pods == s.status.pods:
        return None
    override = FenceOverride(said=said, attempt=s.status.attempt)
    return Decision(record=replace(s.status, pods=pods, fence_override=override), reason=f"a person answers: {said}")


def _without_proof(s: Situation, open_ends: list[str]) -> Decision:
    unused = unused_power_offs(s.status.pods, s.view.nodes, s.now)
    message = "; ".join([f"no proof that {some(open_ends)} can no longer write", *unused[:1]])
    limit = s.root.options.fence_timeout or s.policy.fence_timeout
    if limit is None:
        return s.hold(message)
    waited = s.now - began(s, Phase.FENCING)
    if waited < limit:
        return Decision(reason=message, recheck=limit - waited)
    pods = [replace(p, proof=p.proof or f"none: fence_timeout of {limit} is over") for p in s.status.pods]
    return Decision(record=replace(s.status, pods=pods), reason=f"{message}; the owner allowed to go on after {limit}")


def _gone(s: Situation, pods: Sequence[FencedPod]) -> str:
    """The message. A rank that was created again while the gang was being stopped counts as one rank."""
    names = {s.terms.named(pod.name, pod.index) for pod in pods}
    return f"{len(names)} {s.terms.pod}s are proven gone" if len(names) != 1 else f"1 {s.terms.pod} is proven gone"
