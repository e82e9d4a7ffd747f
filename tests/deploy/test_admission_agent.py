"""What an agent may do with the token of its own pod, at a real API server with the shipped RBAC and policies."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

import pytest

from healthd.agent.agent import Agent
from healthd.agent.dependencies import AgentDependencies
from healthd.agent.judge import NodeFacts
from healthd.clock import SystemClock
from healthd.core.api import ANNOTATION_REPAIRED, Lease, Node, NodeHealth
from healthd.core.api.model import KernelRecord, Verdict
from healthd.core.config import QuarantinePolicy
from healthd.core.diagnosis.readings import RecordBatch
from healthd.telemetry.events import Announcer
from healthd.telemetry.metrics import Metrics
from tests.deploy.accounts import SYSTEM, as_holder_of, refuser, token_of_agent
from tests.lab.api import Json
from tests.lab.control_plane import ControlPlane
from tests.lab.programs import wait_until
from tests.lab.simulated import SimulatedNodes

pytestmark = [pytest.mark.lab, pytest.mark.slow]

OFF_THE_BUS = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus."
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases"
HEALTHS = "/apis/healthd.dev/v1alpha1/nodehealths"
RECOVERIES = "/apis/healthd.dev/v1alpha1/namespaces/default/recoveries"
EVENTS = "/api/v1/namespaces/default/events"
OWN_ALONE = "may change that node alone"


@dataclass(frozen=True)
class Broken:
    """An agent whose node was broken into: its token, and whom it might harm."""

    control_plane: ControlPlane
    node: str
    other: str
    token: str

    def tries(self, method: str, path: str, body: Json | None = None) -> tuple[int, str]:
        """The status and the message of the API server's answer."""
        api = self.control_plane.api_as(self.token)
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        place = path.format(node=self.node, other=self.other)
        text = json.dumps(body).replace("{node}", self.node).replace("{other}", self.other) if body else None
        status, raw = api.raw(method, place, text, {"Content-Type": kind})
        return status, raw.decode(errors="replace")


@pytest.fixture(scope="module")
def broken(installed: ControlPlane, simulated_nodes: SimulatedNodes) -> Broken:
    """The agent of the first of two nodes, in the pod that the shipped DaemonSet made there."""
    node, other = simulated_nodes.add(2)
    agent = Broken(installed, node, other, token_of_agent(installed, node))
    installed.api.create(HEALTHS, a_health(other))
    installed.api.create(LEASES, a_slot("healthd-quarantine-cluster-7", other))
    installed.api.create(RECOVERIES, A_RECOVERY)
    cordon, dry = {"spec": {"unschedulable": True}}, "/api/v1/nodes/{other}?dryRun=All"
    wait_until("the policies at work", lambda: agent.tries("PATCH", dry, cordon)[0] == 403, limit=30)
    return agent


@pytest.fixture
def fresh_node(broken: Broken) -> Iterator[None]:
    """The node as it was."""
    yield
    back = {
        "metadata": {"annotations": {"healthd.dev/quarantine": None}},
        "spec": {"unschedulable": None, "taints": None},
    }
    broken.control_plane.api.patch(f"/api/v1/nodes/{broken.node}", back)


def taint(key: str, effect: str = "NoSchedule") -> Json:
    return {"key": key, "value": "x", "effect": effect}


def a_health(node: str) -> Json:
    return {"apiVersion": "healthd.dev/v1alpha1", "kind": "NodeHealth", "metadata": {"name": node}}


def a_slot(name: str, node: str, holder: str = "") -> Json:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "labels": {"healthd.dev/node": node}},
        "spec": {"holderIdentity": holder or node},
    }


def an_event(about: str, kind: str = "Node", by: str = "healthd-agent", **meta: object) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": "any.", **meta},
        "involvedObject": {"kind": kind, "name": about},
        "type": "Warning",
        "reason": "Quarantined",
        "message": "xid-79",
        "reportingComponent": by,
        "reportingInstance": about,
    }


A_RECOVERY: Json = {
    "apiVersion": "healthd.dev/v1alpha1",
    "kind": "Recovery",
    "metadata": {"name": "r"},
    "spec": {
        "gang": {"kind": "Job", "name": "llama", "namespace": "default", "uid": "u"},
        "firstAttempt": 1,
        "cause": {"kind": "hardware", "message": "m", "at": "2026-01-01T00:00:00Z"},
    },
}
OWNED_BY_OTHER = [{"apiVersion": "v1", "kind": "Node", "name": "{other}", "uid": "u"}]

BY_POLICY: dict[str, tuple[str, str, Json | None, str]] = {
    "another node's cordon": ("PATCH", "/api/v1/nodes/{other}", {"spec": {"unschedulable": True}}, OWN_ALONE),
    "another node's conditions": (
        "PATCH",
        "/api/v1/nodes/{other}/status",
        {"status": {"conditions": [{"type": "AcceleratorHealthy", "status": "False"}]}},
        OWN_ALONE,
    ),
    "a foreign taint put on": (
        "PATCH",
        "/api/v1/nodes/{node}",
        {"spec": {"taints": [taint("nvidia.com/gpu")]}},
        "healthd.dev/quarantined alone",
    ),
    "a spare reserved": (
        "PATCH",
        "/api/v1/nodes/{node}",
        {"spec": {"taints": [taint("healthd.dev/reserved-for")]}},
        "healthd.dev/quarantined alone",
    ),
    "every pod of its node evicted": (
        "PATCH",
        "/api/v1/nodes/{node}",
        {"spec": {"taints": [taint("healthd.dev/quarantined", "NoExecute")]}},
        "evict none",
    ),
    "a label of its node": (
        "PATCH",
        "/api/v1/nodes/{node}",
        {"metadata": {"labels": {"healthd.dev/spare": "true"}}},
        "labels, finalizers and owners",
    ),
    "a label by way of the status": (
        "PATCH",
        "/api/v1/nodes/{node}/status",
        {"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}},
        "labels, finalizers and owners",
    ),
    "a finalizer on its node": (
        "PATCH",
        "/api/v1/nodes/{node}",
        {"metadata": {"finalizers": ["example.com/keep"]}},
        "labels, finalizers and owners",
    ),
    "the proof that its node is off": (
        "PATCH",
        "/api/v1/nodes/{node}",
        {"metadata": {"annotations": {"healthd.dev/powered-off": "2026-01-01T00:00:00Z"}}},
        "healthd.dev/quarantine alone",
    ),
    "the word that its node was repaired": (
        "PATCH",
        "/api/v1/nodes/{node}",
        {"metadata": {"annotations": {ANNOTATION_REPAIRED: "2026-01-01T00:00:00Z"}}},
        "healthd.dev/quarantine alone",
    ),
    "the kubelet's conditions": (
        "PATCH",
        "/api/v1/nodes/{node}/status",
        {"status": {"conditions": [{"type": "Ready", "status": "False"}]}},
        "AcceleratorHealthy and FabricHealthy alone",
    ),
    "more GPUs than there are": (
        "PATCH",
        "/api/v1/nodes/{node}/status",
        {"status": {"capacity": {"nvidia.com/gpu": "80"}}},
        "conditions alone",
    ),
    "another boot id": (
        "PATCH",
        "/api/v1/nodes/{node}/status",
        {"status": {"nodeInfo": {"bootID": "another"}}},
        "conditions alone",
    ),
    "the provider's id": (
        "PATCH",
        "/api/v1/nodes/{node}",
        {"spec": {"providerID": "cloud://another"}},
        "the taints and unschedulable",
    ),
    "another node's report": (
        "PATCH",
        HEALTHS + "/{other}/status",
        {"status": {"verdict": "unhealthy"}},
        "NodeHealth of that node alone",
    ),
    "a report for another node": ("POST", HEALTHS, a_health("nobody"), "NodeHealth of that node alone"),
    "a report that outlives its node": (
        "POST",
        HEALTHS,
        {**a_health("{node}"), "metadata": {"name": "{node}", "finalizers": ["example.com/keep"]}},
        "goes with its node",
    ),
    "a report that goes with another node": (
        "POST",
        HEALTHS,
        {**a_health("{node}"), "metadata": {"name": "{node}", "ownerReferences": OWNED_BY_OTHER}},
        "goes with its node",
    ),
    "another node's slot given back": (
        "DELETE",
        LEASES + "/healthd-quarantine-cluster-7",
        None,
        "slots of the budget for that node alone",
    ),
    "a slot in another node's name": (
        "POST",
        LEASES,
        a_slot("healthd-quarantine-cluster-1", "{other}"),
        "slots of the budget for that node alone",
    ),
    "a slot held by another node": (
        "POST",
        LEASES,
        a_slot("healthd-quarantine-cluster-1", "{node}", holder="{other}"),
        "slots of the budget for that node alone",
    ),
    "the controller's lease": (
        "POST",
        LEASES,
        a_slot("healthd-controller", "{node}"),
        "slots of the budget for that node alone",
    ),
    "a slot that is none of the budget's": (
        "POST",
        LEASES,
        a_slot("healthd-quarantine-any-name", "{node}"),
        "slots of the budget for that node alone",
    ),
    "a slot with more in it than is needed": (
        "POST",
        LEASES,
        {
            **a_slot("healthd-quarantine-cluster-1", "{node}"),
            "spec": {"holderIdentity": "{node}", "leaseTransitions": 7},
        },
        "and nothing else",
    ),
    "a slot with a large annotation": (
        "POST",
        LEASES,
        {
            **a_slot("healthd-quarantine-cluster-1", "{node}"),
            "metadata": {
                "name": "healthd-quarantine-cluster-1",
                "labels": {"healthd.dev/node": "{node}"},
                "annotations": {"a": "x" * 100_000},
            },
        },
        "and nothing else",
    ),
    "the images of its node": (
        "PATCH",
        "/api/v1/nodes/{node}/status",
        {"status": {"images": [{"names": ["evil"], "sizeBytes": 1}]}},
        "conditions alone",
    ),
    "the address of its node": (
        "PATCH",
        "/api/v1/nodes/{node}/status",
        {"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]}},
        "conditions alone",
    ),
    "an event about another node": ("POST", EVENTS, an_event("{other}"), "events of that node alone"),
    "an event about a pod": ("POST", EVENTS, an_event("{node}", kind="Pod"), "events of that node alone"),
    "an event in the kubelet's name": ("POST", EVENTS, an_event("{node}", by="kubelet"), "in its own name"),
    "an event that never goes": (
        "POST",
        EVENTS,
        an_event("{node}", finalizers=["example.com/keep"]),
        "nothing may keep it",
    ),
}
"""What RBAC alone would allow: for each, a request, and words of the refusal."""

POLICIES = {"/api/v1/nodes/": "node", HEALTHS: "report", LEASES: "slots", EVENTS: "events"}


def policy_of(what: str) -> str:
    """The one that refuses it."""
    path = BY_POLICY[what][1]
    return next(f"healthd-agent-{name}" for start, name in POLICIES.items() if path.startswith(start))


BY_RBAC: dict[str, tuple[str, str, Json | None]] = {
    "a secret": ("GET", f"/api/v1/namespaces/{SYSTEM}/secrets/any", None),
    "all secrets": ("GET", "/api/v1/secrets", None),
    "a config map": ("GET", f"/api/v1/namespaces/{SYSTEM}/configmaps", None),
    "the pods": ("GET", "/api/v1/pods", None),
    "a pod deleted": ("DELETE", "/api/v1/namespaces/default/pods/any", None),
    "a pod made": ("POST", "/api/v1/namespaces/default/pods", {"metadata": {"name": "any"}}),
    "a pod evicted": ("POST", "/api/v1/namespaces/default/pods/any/eviction", {"metadata": {"name": "any"}}),
    "a shell in a pod": ("POST", "/api/v1/namespaces/default/pods/any/exec?command=sh&stdout=true", None),
    "the kubelet's own API": ("GET", "/api/v1/nodes/{node}/proxy/pods", None),
    "its node deleted": ("DELETE", "/api/v1/nodes/{node}", None),
    "a node made": ("POST", "/api/v1/nodes", {"metadata": {"name": "any"}}),
    "a job stopped": ("PATCH", "/apis/batch/v1/namespaces/default/jobs/any", {"spec": {"suspend": True}}),
    "the recoveries": ("GET", RECOVERIES, None),
    "a recovery made": ("POST", RECOVERIES, {**A_RECOVERY, "metadata": {"name": "another"}}),
    "a recovery's state": ("PATCH", RECOVERIES + "/r/status", {"status": {"phase": "Superseded"}}),
    "a token": ("POST", f"/api/v1/namespaces/{SYSTEM}/serviceaccounts/healthd-controller/token", {"spec": {}}),
    "leases elsewhere": ("GET", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", None),
    "events deleted": ("DELETE", EVENTS + "/any", None),
    "its report deleted": ("DELETE", HEALTHS + "/{node}", None),
    "the policy that binds it": (
        "DELETE",
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/healthd-agent-node",
        None,
    ),
}


@pytest.mark.parametrize("what", BY_POLICY)
def test_the_policy_refuses(broken: Broken, what: str) -> None:
    method, path, body, words = BY_POLICY[what]

    status, message = broken.tries(method, path, body)

    assert status == 403, message
    assert words in message
    assert refuser(message) == policy_of(what)


@pytest.mark.parametrize("what", BY_RBAC)
def test_rbac_refuses(broken: Broken, what: str) -> None:
    status, message = broken.tries(*BY_RBAC[what])

    assert (status, refuser(message)) == (403, "RBAC"), message


def test_no_other_account_may_be_impersonated(broken: Broken) -> None:
    api = broken.control_plane.api_as(broken.token)

    status, message = api.raw("GET", "/api/v1/nodes", headers={"Impersonate-User": "admin"})

    assert status == 403
    assert b"cannot impersonate" in message


@pytest.mark.usefixtures("fresh_node")
def test_a_foreign_taint_cannot_be_taken_off(broken: Broken) -> None:
    foreign = {"spec": {"taints": [taint("nvidia.com/gpu")]}}
    broken.control_plane.api.patch(f"/api/v1/nodes/{broken.node}", foreign)

    status, message = broken.tries("PATCH", "/api/v1/nodes/{node}", {"spec": {"taints": None}})

    assert status == 403
    assert "healthd.dev/quarantined alone" in message


@pytest.mark.usefixtures("fresh_node")
def test_its_own_node_may_be_cordoned_beside_a_foreign_taint(broken: Broken) -> None:
    foreign = taint("nvidia.com/gpu")
    broken.control_plane.api.patch(f"/api/v1/nodes/{broken.node}", {"spec": {"taints": [foreign]}})
    ours = {"spec": {"unschedulable": True, "taints": [foreign, taint("healthd.dev/quarantined")]}}

    status, message = broken.tries("PATCH", "/api/v1/nodes/{node}", ours)

    assert status == 200, message


def test_a_token_that_claims_no_node_may_change_nothing(broken: Broken) -> None:
    token = broken.control_plane.service_account_token(SYSTEM, "healthd-agent")
    by_hand = Broken(broken.control_plane, broken.node, broken.other, token)

    cordon = by_hand.tries("PATCH", "/api/v1/nodes/{node}", {"spec": {"unschedulable": True}})
    report = by_hand.tries("POST", HEALTHS, a_health("{node}"))
    slot = by_hand.tries("POST", LEASES, a_slot("healthd-quarantine-cluster-1", "{node}"))
    event = by_hand.tries("POST", EVENTS, an_event("{node}"))

    assert [status for status, _ in (cordon, report, slot, event)] == [403, 403, 403, 403]


def test_the_kubelet_and_people_are_not_bound_by_the_agents_policy(broken: Broken) -> None:
    answer = broken.control_plane.api.patch(f"/api/v1/nodes/{broken.other}", {"metadata": {"labels": {"a": "b"}}})

    assert answer["metadata"]["labels"]["a"] == "b"


async def test_the_real_agent_may_do_all_that_it_does(broken: Broken) -> None:
    silent = {"status": {"conditions": conditions_with_a_silent_kubelet(broken)}}
    broken.control_plane.api.patch(f"/api/v1/nodes/{broken.node}/status", silent)
    clock = SystemClock()
    async with as_holder_of(broken.control_plane, broken.token) as cluster:
        metrics = Metrics()
        announcer = Announcer(cluster, clock, component="healthd-agent", instance=broken.node, metrics=metrics)
        policy = QuarantinePolicy()
        agent = Agent(
            AgentDependencies(
                node=NodeFacts(name=broken.node, boot_id="boot-1"),
                cluster=cluster,
                clock=clock,
                metrics=metrics,
                announce=announcer,
                quarantine=policy,
            )
        )
        await agent.load(clock.now())
        fault = KernelRecord(sequence=1, at=clock.now(), text=OFF_THE_BUS, boot_id="boot-1")
        agent.state.ingest_records(RecordBatch(records=[fault], last_sequence=1), clock.now())
        await completed_cycle(agent, clock.now())
        out = await cluster.get(Node, broken.node)
        slots = (await cluster.list(Lease, namespace=SYSTEM, labels={"healthd.dev/node": broken.node})).items
        health = await cluster.get(NodeHealth, broken.node)
        say_repaired(broken, clock)
        await completed_cycle(agent, clock.now() + timedelta(seconds=2))
        back = await cluster.get(Node, broken.node)
        left = (await cluster.list(Lease, namespace=SYSTEM, labels={"healthd.dev/node": broken.node})).items
        await announcer.flush(limit=30)
    described = broken.control_plane.kubectl("describe", "node", broken.node)

    assert [reason in described for reason in ("Quarantined", "Returned")] == [True, True]
    assert (out.spec.unschedulable, [slot.spec.holder_identity for slot in slots]) == (True, [broken.node])
    assert health.status.verdict is Verdict.UNHEALTHY
    assert {c.type: c.status for c in out.status.conditions}["Ready"] == "Unknown"
    assert {c.type: c.status for c in back.status.conditions}["AcceleratorHealthy"] == "True"
    assert (back.spec.unschedulable, left) == (False, [])


async def completed_cycle(agent: Agent, now: datetime) -> None:
    """
    Cycle as the agent's loop does, until one cycle has done all it wants.

    The node controller taints a node whose kubelet is silent, and on a busy machine its writes can conflict with every
    try of one cycle. A request that the policies refuse would be refused each time.
    """
    for _ in range(10):
        await agent.cycle(now)
        if not agent.trouble:
            return
    pytest.fail(f"ten cycles could not act on the node: {agent.trouble}")


def conditions_with_a_silent_kubelet(broken: Broken) -> list[Json]:
    """As the node controller leaves them: a condition whose status is Unknown must survive the agent's writes."""
    conditions: list[Json] = broken.control_plane.api.get(f"/api/v1/nodes/{broken.node}")["status"]["conditions"]
    return [{**one, "status": "Unknown", "reason": "NodeStatusUnknown"} for one in conditions]


def say_repaired(broken: Broken, clock: SystemClock) -> None:
    stamp = (clock.now() + timedelta(seconds=1)).isoformat()
    body = {"metadata": {"annotations": {ANNOTATION_REPAIRED: stamp}}}
    broken.control_plane.api.patch(f"/api/v1/nodes/{broken.node}", body)
