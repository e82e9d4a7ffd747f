"""Recoveries of gangs of thousands fit into an object."""

from __future__ import annotations

import base64
import random
import uuid
import zlib
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from healthd.core.api import Attempt, ChosenCheckpoint, FencedPod, RecoveryStatus, is_same, stored
from healthd.core.api.model import Phase
from healthd.core.api.pod_packs import MOST_PODS, PACKED_ABOVE, TooManyPods, packed
from healthd.core.recovery.fence import fence_pods
from healthd.core.recovery.gang import GangView
from healthd.core.recovery.recovery_status import dressed
from healthd.core.untrusted import LARGEST_GANG
from tests.builders import a_node
from tests.core.gangs import a_recovery_in, a_root
from tests.fakes import START

LIMIT = 512 * 1024
MOST_IN_ETCD = 1536 * 1024
ROOM = 128 * 1024
"""For managed fields and messages."""
LETTERS = "bcdfghjklmnpqrstvwxz2456789"
ENDED = "the kubelet of {} reports every container terminated"


def pods_of(count: int, *, proof: str = "") -> list[FencedPod]:
    """The pods of a gang with a node for each, as a Job names them, seen by a kubelet and an agent."""
    dice = random.Random(7)

    def an_id() -> str:
        return str(uuid.UUID(int=dice.getrandbits(128), version=4))

    def one(rank: int) -> FencedPod:
        node, boot = f"ip-10-{dice.randrange(256)}-{rank // 256}-{rank % 256}.ec2.internal", an_id()
        return FencedPod(
            name=f"pretrain-llama-405b-{rank}-{''.join(dice.choices(LETTERS, k=5))}",
            uid=an_id(),
            node=node,
            index=str(rank),
            since=START + timedelta(seconds=dice.randrange(90)),
            boot_id=boot,
            agent_boot_id=boot,
            machine=an_id(),
            proof=proof.format(node),
        )

    return [one(rank) for rank in range(count)]


def a_large_status(count: int, *, proof: str = "") -> RecoveryStatus:
    """As it is written when the gang is started again, with one node replaced."""
    pods = pods_of(count, proof=proof)
    placement = {pod.index: pod.node for pod in pods} | {"7": "a-spare"}
    attempt = Attempt(number=1, checkpoint=ChosenCheckpoint(), placement=placement, ran_on=placement)
    recovery = a_recovery_in(Phase.STARTING, pods=pods, placement=placement, attempts=[attempt])
    return dressed(recovery, recovery.status, START)


def read_back(body: dict[str, Any]) -> RecoveryStatus:
    """What another controller reads."""
    return msgspec.json.decode(msgspec.json.encode(body), type=RecoveryStatus)


@pytest.mark.slow
@pytest.mark.parametrize("proof", ["", ENDED])
def test_the_recovery_of_ten_thousand_pods_fits_into_a_third_of_an_object(proof: str) -> None:
    size = len(msgspec.json.encode(stored(a_large_status(10_000, proof=proof))))

    assert size < LIMIT


@pytest.mark.slow
@pytest.mark.parametrize("proof", ["", ENDED])
def test_the_recovery_of_the_largest_gang_and_of_pods_that_failed_fits_and_is_read_back(proof: str) -> None:
    status = a_large_status(MOST_PODS, proof=proof)
    body = stored(status)

    assert MOST_PODS > LARGEST_GANG
    assert len(msgspec.json.encode(body)) < MOST_IN_ETCD - ROOM
    assert len(read_back(body).pods) == MOST_PODS


def test_more_pods_than_can_be_read_back_are_refused_before_they_are_written() -> None:
    pods = [FencedPod(name="p", uid="u", node="n")] * (MOST_PODS + 1)

    with pytest.raises(TooManyPods, match="30,000 pods, and this gang has 30,001"):
        stored(RecoveryStatus(pods=pods))


def test_what_was_packed_is_read_back_and_packed_as_before() -> None:
    status = a_large_status(PACKED_ABOVE + 1)
    body = stored(status)

    again = read_back(body)
    assert "pods" not in body
    assert [(pod.uid, pod.name, pod.node, pod.index, pod.since) for pod in again.pods] == [
        (pod.uid, pod.name, pod.node, pod.index, pod.since) for pod in status.pods
    ]
    assert again.placement == status.placement
    assert stored(again) == body


def test_the_placement_of_the_present_attempt_of_a_large_gang_is_written_once() -> None:
    status = replace(a_large_status(PACKED_ABOVE + 1), attempt=2)
    first, present = [replace(status.attempts[0], number=number, ran_on={}) for number in (1, 2)]
    status = replace(status, attempts=[first, present])

    body = stored(status)

    assert ["placement" in attempt for attempt in body["attempts"]] == [True, False]
    assert read_back(body).attempts == [first, present]


def test_the_last_plan_of_an_attempt_is_kept_beside_a_new_one() -> None:
    status = replace(a_large_status(PACKED_ABOVE + 1), attempt=1)
    changed = replace(status, placement=status.placement | {"8": "another-spare"})

    assert read_back(stored(changed)).attempts == status.attempts


def test_a_proof_is_read_back_word_by_word() -> None:
    status = a_large_status(PACKED_ABOVE + 1, proof=ENDED)

    assert [pod.proof for pod in read_back(stored(status)).pods] == [pod.proof for pod in status.pods]


def test_a_gang_that_shrinks_is_placed_as_it_was() -> None:
    status = a_large_status(PACKED_ABOVE + 1)
    smaller = {index: node for index, node in status.placement.items() if index != "3"}
    none: dict[str, str] = {}

    for placement in (smaller, none):
        assert read_back(stored(msgspec.structs.replace(status, placement=placement))).placement == placement


def test_pods_without_a_uuid_are_packed_too() -> None:
    pods = [FencedPod(name=f"p{number}", uid=f"uid-{number}", node="") for number in range(PACKED_ABOVE + 1)]

    assert read_back(stored(RecoveryStatus(pods=pods))).pods == pods


def test_the_pods_of_a_small_gang_are_written_for_people_to_read() -> None:
    status = a_large_status(PACKED_ABOVE)

    assert len(stored(status)["pods"]) == PACKED_ABOVE
    assert read_back(stored(status)) == status


def test_a_boot_is_known_again_by_its_digest_and_another_one_proves_the_end() -> None:
    status = read_back(stored(a_large_status(PACKED_ABOVE + 1)))
    original = pods_of(1)[0]

    def proof_in(boot_id: str) -> str:
        node = a_node(original.node, boot_id=boot_id)
        info = msgspec.structs.replace(node.status.node_info, system_uuid=original.machine)
        node = msgspec.structs.replace(node, status=msgspec.structs.replace(node.status, node_info=info))
        return fence_pods(GangView(root=a_root(), nodes={original.node: node}), status.pods, START)[0].proof

    assert is_same(status.pods[0].boot_id, original.boot_id)
    assert proof_in(original.boot_id) == ""
    assert proof_in("another") == f"{original.node} has booted since"


def test_packed_pods_that_cannot_be_read_are_refused_when_they_are_read() -> None:
    with pytest.raises(msgspec.ValidationError, match="cannot be read"):
        read_back({"packed": "bm9uZQ=="})


def repacked(**columns: Any) -> str:
    """What a tenant makes of the pack of one pod."""
    raw = zlib.decompress(base64.b64decode(packed(pods_of(1), {})))
    return base64.b64encode(zlib.compress(msgspec.msgpack.encode(msgspec.msgpack.decode(raw) | columns))).decode()


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(base64.b64encode(zlib.compress(bytes(100_000_000))).decode(), id="a bomb"),
        pytest.param(repacked(proof=["\0" * 4000], node=["n" * 4000]), id="a text that grows when it is written out"),
        pytest.param(repacked(since=[10**15]), id="a moment that no calendar has"),
        pytest.param(repacked(since=["soon"]), id="a moment in words"),
        pytest.param(repacked(name=[7]), id="a number for a name"),
        pytest.param(repacked(uid=[[[]]]), id="a list for a uid"),
        pytest.param(repacked(uid=b"short"), id="half a uid"),
        pytest.param(repacked(node=[]), id="a column that is too short"),
        pytest.param(repacked(left=7), id="a number for a list"),
        pytest.param(repacked(name=["x"] * 30_000), id="more pods than a gang has"),
        pytest.param("%%%", id="no base64"),
    ],
)
def test_a_pack_that_a_tenant_made_is_refused(text: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        read_back({"packed": text})
