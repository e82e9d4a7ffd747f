"""healthd's kinds at a real API server: what it refuses, and what it tells."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from healthd.cluster.crds import definitions
from healthd.controller.act import record
from healthd.controller.lost_recoveries import make_again
from healthd.core.api import Recovery, RecoveryStatus, stored
from healthd.core.api.model import ENDED, Phase
from healthd.core.recovery.situation import enter
from tests.core.api.test_pod_packs import a_large_status
from tests.deploy.accounts import as_holder_of, token_of_controller
from tests.lab.api import ApiError, Json
from tests.lab.control_plane import ControlPlane
from tests.lab.programs import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.slow]

AT = "2026-01-01T03:12:00Z"
POD = {"name": "rank-0", "uid": "u", "node": "node-1"}


def a_recovery(**spec: Any) -> Json:
    gang = {"kind": "Job", "name": "llama", "namespace": "default", "uid": "u"}
    cause = {"kind": "hardware", "message": "xid 79", "at": AT, "node": "node-1"}
    return {
        "apiVersion": "healthd.dev/v1alpha1",
        "kind": "Recovery",
        "metadata": {"name": "llama-1"},
        "spec": {"gang": gang, "firstAttempt": 1, "cause": cause, **spec},
    }


class Recoveries:
    """The one recovery of a namespace."""

    def __init__(self, control_plane: ControlPlane, namespace: str) -> None:
        self._api = control_plane.api
        self._namespace = namespace
        self._path = f"/apis/healthd.dev/v1alpha1/namespaces/{namespace}/recoveries"

    def create(self, body: Json) -> Json:
        """With its gang in this namespace."""
        spec = body["spec"]
        gang = {**spec["gang"], "namespace": self._namespace}
        return self._api.create(self._path, {**body, "spec": {**spec, "gang": gang}})

    def patch(self, body: Json) -> Json:
        return self._api.patch(f"{self._path}/llama-1", body)

    def read(self) -> Json:
        return self._api.get(f"{self._path}/llama-1")

    def record(self, **status: Any) -> Json:
        """Write to the status; None takes a field away."""
        return self._api.patch(f"{self._path}/llama-1/status", {"status": status})

    def refusal(self, **status: Any) -> str:
        """Why the API server refuses that status; empty when it does not."""
        try:
            self.record(**status)
        except ApiError as error:
            return str(error)
        return ""


@pytest.fixture
def recoveries(installed: ControlPlane, namespace: str) -> Recoveries:
    return Recoveries(installed, namespace)


def test_a_new_recovery_is_detected_before_anybody_wrote_its_status(recoveries: Recoveries) -> None:
    made = recoveries.create(a_recovery())

    assert made["status"] == {"phase": "Detected"}


def test_what_started_a_recovery_cannot_be_changed(recoveries: Recoveries) -> None:
    recoveries.create(a_recovery())

    with pytest.raises(ApiError, match="spec cannot be changed"):
        recoveries.patch({"spec": {"cause": {"node": "node-2"}}})


def test_a_recovery_that_ended_stays_ended(recoveries: Recoveries) -> None:
    recoveries.create(a_recovery())
    recoveries.record(phase="Superseded", message="deleted by its user")

    assert "stays ended" in recoveries.refusal(phase="Stopping")
    assert recoveries.refusal(message="deleted by its user, at last") == ""


def test_attempts_are_never_counted_down(recoveries: Recoveries) -> None:
    recoveries.create(a_recovery())
    recoveries.record(attempt=2)

    assert "counted upwards" in recoveries.refusal(attempt=1)
    assert "counted upwards" in recoveries.refusal(attempt=None)
    assert recoveries.refusal(attempt=3) == ""


def test_a_recovery_does_not_become_undecided_again(recoveries: Recoveries) -> None:
    recoveries.create(a_recovery())
    recoveries.record(phase="Held", heldIn="Detected")
    recoveries.record(phase="Detected", heldIn=None)
    recoveries.record(phase="Stopping")

    assert "undecided" in recoveries.refusal(phase=None)


@pytest.mark.parametrize("before", ["Detected", "Stopping"])
def test_no_gang_is_started_before_its_fence(recoveries: Recoveries, before: str) -> None:
    recoveries.create(a_recovery())
    recoveries.record(phase=before)

    assert "fenced" in recoveries.refusal(phase="Starting")


def test_a_hold_is_no_way_around_the_fence(recoveries: Recoveries) -> None:
    recoveries.create(a_recovery())
    recoveries.record(phase="Stopping")
    recoveries.record(phase="Held", heldIn="Stopping")

    assert "fenced" in recoveries.refusal(phase="Starting", heldIn=None)


@pytest.mark.parametrize("after", ["Choosing", "Reserving"])
def test_no_recovery_goes_past_the_fence_with_a_pod_that_is_not_proven_gone(recoveries: Recoveries, after: str) -> None:
    recoveries.create(a_recovery())
    recoveries.record(phase="Fencing", pods=[{**POD, "proof": "its kubelet says so"}, POD])

    assert "proven" in recoveries.refusal(phase=after)
    assert recoveries.refusal(phase=after, pods=[{**POD, "proof": "its kubelet says so"}]) == ""


def test_ten_thousand_pods_are_served_back_and_go_past_the_fence_when_all_are_proven_gone(
    recoveries: Recoveries,
) -> None:
    recoveries.create(a_recovery())
    open_ends, proven = stored(a_large_status(10_000)), stored(a_large_status(10_000, proof="seen"))

    served = recoveries.record(**{**open_ends, "phase": "Fencing"})
    assert msgspec.convert(served, Recovery).status.pods[-1].name == a_large_status(10_000).pods[-1].name
    assert "proven" in recoveries.refusal(phase="Choosing")
    assert recoveries.refusal(**{**proven, "phase": "Choosing", "openEnds": None}) == ""


@pytest.mark.parametrize("before", ["Detected", "Fencing", "Reserving"])
def test_only_a_gang_that_was_started_again_recovers(recoveries: Recoveries, before: str) -> None:
    recoveries.create(a_recovery())
    recoveries.record(phase=before)

    assert "started again" in recoveries.refusal(phase="Recovered")


@pytest.mark.parametrize("held_in", [None, "Held", "Recovered"])
def test_a_held_recovery_says_where_it_goes_on(recoveries: Recoveries, held_in: str | None) -> None:
    recoveries.create(a_recovery())

    assert "goes on" in recoveries.refusal(phase="Held", heldIn=held_in)


def test_the_way_of_a_recovery_is_open_from_end_to_end(recoveries: Recoveries) -> None:
    recoveries.create(a_recovery())
    proven = [{**POD, "proof": "its kubelet says so"}]
    way: list[dict[str, Any]] = [
        {"phase": "Detected", "attempt": 1},
        {"phase": "Stopping", "pods": [POD]},
        {"phase": "Held", "heldIn": "Stopping"},
        {"phase": "Stopping", "heldIn": None},
        {"phase": "Fencing", "pods": proven},
        {"phase": "Choosing"},
        {"phase": "Reserving"},
        {"phase": "Starting"},
        {"phase": "Reserving"},
        {"phase": "Starting"},
        {"phase": "Confirming"},
        {"phase": "Stopping", "attempt": 2, "pods": [POD]},
        {"phase": "Fencing"},
        {"phase": "Starting"},  # another controller had started it already
        {"phase": "Recovered"},
    ]

    assert [step for step in way if recoveries.refusal(**step)] == []


@pytest.mark.parametrize("phase", sorted(set(Phase) - ENDED))
async def test_a_recovery_that_somebody_deleted_is_made_again_in_its_phase(
    installed: ControlPlane, namespace: str, recoveries: Recoveries, phase: Phase
) -> None:
    held = {"heldIn": "Starting"} if phase is Phase.HELD else {}
    status = msgspec.convert(
        {
            "phase": phase,
            "attempt": 1,
            "pods": [{**POD, "proof": "its kubelet says so"}],
            "timeline": [{"at": AT, "phase": phase, "message": "so it was"}],
            **held,
        },
        RecoveryStatus,
    )
    body = a_recovery(gang={"kind": "Job", "name": "llama", "namespace": namespace, "uid": "u"})
    named = {**body, "metadata": {"name": "llama-1", "namespace": namespace}}
    lost = msgspec.structs.replace(msgspec.convert(named, Recovery), status=status)
    async with as_holder_of(installed, token_of_controller(installed)) as cluster:
        made = await make_again(cluster, lost, status.timeline[0].at)

    assert (made.status.phase, made.status.pods) == (phase, status.pods)
    assert recoveries.read()["status"]["phase"] == phase


@pytest.mark.parametrize("phase", sorted(Phase))
def test_every_phase_is_known(recoveries: Recoveries, phase: Phase) -> None:
    recoveries.create(a_recovery())

    assert "Unsupported value" not in recoveries.refusal(phase=phase, heldIn="Stopping")


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"firstAttempt": 0}, "firstAttempt"),
        ({"cause": {"kind": "magic", "message": "m", "at": AT}}, "Unsupported value"),
        ({"cause": {"kind": "hang", "message": "m", "at": "yesterday"}}, "date-time"),
        ({"gang": {"kind": "Job", "name": "", "namespace": "default", "uid": "u"}}, "spec.gang.name"),
    ],
)
def test_a_recovery_of_nonsense_is_refused(recoveries: Recoveries, spec: Json, why: str) -> None:
    with pytest.raises(ApiError, match=why):
        recoveries.create(a_recovery(**spec))


LONG = "x" * 5000


def without_limits(schema: Any) -> Any:
    """A definition as an older healthd had it."""
    if isinstance(schema, list):
        return [without_limits(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    limits = () if "properties" in schema else ("maxLength", "maxItems", "maxProperties", "maximum")
    kept = {key: below for key, below in schema.items() if key not in limits}
    return {key: below if key == "x-kubernetes-validations" else without_limits(below) for key, below in kept.items()}


def with_rules_left_out(definition: Json) -> Json:
    """Their cost cannot be bounded where lists have no limit."""
    rules = "x-kubernetes-validations"
    text = json.dumps(definition)
    found: Json = json.loads(text, object_hook=lambda each: {k: v for k, v in each.items() if k != rules})
    return found


async def test_a_recovery_from_before_the_limits_goes_on(
    installed: ControlPlane, namespace: str, recoveries: Recoveries
) -> None:
    (own,) = [each for each in definitions() if each["spec"]["names"]["kind"] == "Recovery"]
    installed.apply(json.dumps(with_rules_left_out(without_limits(own))))
    too_long = a_recovery(cause={"kind": "hardware", "message": LONG, "at": AT, "node": "node-1"})
    wait_until("it is stored", lambda: made_or_none(recoveries, too_long), limit=30)
    cause = {"kind": "hardware", "message": LONG, "at": AT, "node": "node-1"}
    hint = {"attempt": 1, "avoid": [f"node-{number}" for number in range(2000)]}
    recoveries.record(phase="Stopping", attempt=1, causes=[cause], hint=hint)
    installed.apply(json.dumps(own))
    dry = f"/apis/healthd.dev/v1alpha1/namespaces/{namespace}/recoveries?dryRun=All"
    other = {**too_long, "metadata": {"name": "llama-2"}}
    wait_until("the limits at work", lambda: refused(installed, dry, other), limit=30)

    async with as_holder_of(installed, installed.token) as cluster:
        known = await cluster.get(Recovery, "llama-1", namespace)
        moved = enter(known.status, Phase.FENCING, "all of them have stopped", known.status.causes[0].at)
        more = msgspec.structs.replace(moved.record or known.status, causes=[*known.status.causes] * 2)
        written = await record(cluster, known, more, known.status.causes[0].at)

    assert (written.status.phase, len(written.status.causes)) == (Phase.FENCING, 2)
    assert [len(each["message"]) for each in recoveries.read()["status"]["causes"]] == [1024, 1024]
    assert len(recoveries.read()["spec"]["cause"]["message"]) == 5000, "what is not changed is passed over"
    assert len(recoveries.read()["status"]["hint"]["avoid"]) == 2000


def made_or_none(recoveries: Recoveries, body: Json) -> Json | None:
    try:
        return recoveries.create(body)
    except ApiError:
        return None


def refused(installed: ControlPlane, path: str, body: Json) -> bool:
    try:
        installed.api.create(path, body)
    except ApiError as error:
        return "Too long" in str(error)
    return False


@pytest.mark.parametrize(
    ("status", "why"),
    [
        ({"attempt": 2**31}, "status.attempt"),
        ({"stepAtFault": 2 * 10**18}, "status.stepAtFault"),
        ({"causes": [{"kind": "hang", "message": LONG, "at": AT}]}, "Too long"),
        ({"hint": {"attempt": 1, "avoid": ["n"] * 1001}}, "Too many"),
        ({"pods": [{**POD, "node": "n" * 254}]}, "Too long"),
    ],
)
def test_what_healthd_would_not_read_is_refused(recoveries: Recoveries, status: Json, why: str) -> None:
    recoveries.create(a_recovery())

    assert why in recoveries.refusal(**status)


def test_a_report_without_a_verdict_is_unknown(installed: ControlPlane, namespace: str) -> None:
    body = {"apiVersion": "healthd.dev/v1alpha1", "kind": "NodeHealth", "metadata": {"name": namespace}}

    made = installed.api.create("/apis/healthd.dev/v1alpha1/nodehealths", body)

    assert made["status"] == {"verdict": "unknown"}


def test_get_recoveries_has_all_that_matters_in_one_line(
    installed: ControlPlane, namespace: str, recoveries: Recoveries
) -> None:
    recoveries.create(a_recovery())
    recoveries.record(
        attempt=1,
        gang="job/llama",
        badNodes="node-1",
        resumesFrom="step 1200",
        runningAfter="5s",
        took="2m13s",
        message="training moved on to step 1300",
    )

    head, line = installed.kubectl("get", "recoveries", "-n", namespace).splitlines()

    assert head.split() == [
        "NAME",
        "GANG",
        "CAUSE",
        "NODE",
        "PHASE",
        "ATTEMPT",
        "FROM",
        "RUNNING",
        "TOOK",
        "AGE",
        "MESSAGE",
    ]
    words = " ".join(line.split())
    assert words.startswith("llama-1 job/llama hardware node-1 Detected 1 step 1200 5s 2m13s")
    assert words.endswith("training moved on to step 1300")


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("recovery.spec", "What started a recovery"),
        ("recovery.spec.gang", "root of a gang"),
        ("recovery.status.pods.proof", "no longer write"),
        ("recovery.status.hint.avoid", "no pod of the gang"),
        ("nodehealth.status.findings", "judged fact"),
        ("nodehealth.status.gonePods", "may still run"),
    ],
)
def test_explain_says_what_a_field_means(installed: ControlPlane, field: str, words: str) -> None:
    reported = installed.kubectl("explain", field)

    assert words in " ".join(reported.split())


def an_incident(**spec: Any) -> Json:
    known = {"key": "node/n1/1", "severity": "page", "title": "n1 is out", "opened": AT, "updated": AT, "revision": 2}
    body = {"apiVersion": "healthd.dev/v1alpha1", "kind": "Incident", "metadata": {"name": "n1"}}
    return {**body, "spec": {**known, **spec}}


@pytest.mark.parametrize(
    ("spec", "words"),
    [({"key": "node/n2/1"}, "identity"), ({"revision": 1}, "counted upwards"), ({"severity": "fatal"}, "severity")],
)
def test_an_incident_stays_the_same_and_goes_on(
    installed: ControlPlane, namespace: str, spec: dict[str, Any], words: str
) -> None:
    path = f"/apis/healthd.dev/v1alpha1/namespaces/{namespace}/incidents"
    installed.api.create(path, an_incident())
    installed.api.patch(f"{path}/n1", {"spec": {"revision": 3, "resolved": AT}, "status": {"deliveries": {"a": {}}}})

    with pytest.raises(ApiError, match=words):
        installed.api.patch(f"{path}/n1", {"spec": spec})
