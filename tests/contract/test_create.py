"""
Creating: what the server adds, drops and refuses.
"""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from healthd.cluster.port import AlreadyExists, Cluster, Invalid, NotFound
from healthd.core.api import Lease, Recovery, RecoveryStatus
from healthd.core.api.model import Phase
from tests.builders import a_lease, a_node, a_pod, a_recovery
from tests.fakes import START


async def test_new_object_gets_uid_version_generation_and_time(cluster: Cluster, name: str, namespace: str) -> None:
    made = await cluster.create(a_recovery(name, namespace=namespace))

    assert made.metadata.uid
    assert made.metadata.resource_version
    assert made.metadata.generation == 1
    assert made.metadata.creation_timestamp is not None


async def test_time_of_creation_is_a_whole_second(cluster: Cluster, name: str, namespace: str) -> None:
    made = await cluster.create(a_lease(name, namespace=namespace))

    assert made.metadata.creation_timestamp is not None
    assert made.metadata.creation_timestamp.microsecond == 0


async def test_lease_keeps_its_times_to_the_microsecond(cluster: Cluster, name: str, namespace: str) -> None:
    whole, broken = START, START + timedelta(microseconds=500_000)
    lease = a_lease(name, namespace=namespace, renewed=whole)

    made = await cluster.create(lease)
    patched = await cluster.patch(Lease, name, {"spec": {"renewTime": broken}}, namespace=namespace)

    assert made.spec.renew_time == whole
    assert patched.spec.renew_time == broken


async def test_what_create_answers_is_what_get_answers(cluster: Cluster, name: str, namespace: str) -> None:
    made = await cluster.create(a_pod(name, namespace=namespace, annotations={"example.com/a": "b"}))

    assert await cluster.get(type(made), name, namespace) == made


async def test_taken_name_is_refused(cluster: Cluster, name: str, namespace: str) -> None:
    await cluster.create(a_lease(name, namespace=namespace, holder="first"))

    with pytest.raises(AlreadyExists, match=name):
        await cluster.create(a_lease(name, namespace=namespace, holder="second"))

    assert (await cluster.get(Lease, name, namespace)).spec.holder_identity == "first"


async def test_same_name_in_another_namespace_is_another_object(cluster: Cluster, name: str, namespace: str) -> None:
    first = await cluster.create(a_lease(name, namespace=namespace))
    second = await cluster.create(a_lease(name, namespace=f"{namespace}-2"))

    assert first.metadata.uid != second.metadata.uid


async def test_status_is_dropped_where_it_is_a_subresource(cluster: Cluster, name: str, namespace: str) -> None:
    made = await cluster.create(a_recovery(name, namespace=namespace, status=RecoveryStatus(phase=Phase.HELD)))

    assert made.status.phase is Phase.DETECTED
    assert (await cluster.get(Recovery, name, namespace)).status.phase is Phase.DETECTED


async def test_generated_names_differ_and_keep_their_prefix(cluster: Cluster, name: str, namespace: str) -> None:
    lease = a_lease("", namespace=namespace, generate_name=f"{name}-")

    first, second = await cluster.create(lease), await cluster.create(lease)

    assert first.metadata.name.startswith(f"{name}-")
    assert len(first.metadata.name) > len(f"{name}-")
    assert first.metadata.name != second.metadata.name


async def test_generated_name_fits_into_a_label(cluster: Cluster, namespace: str) -> None:
    made = await cluster.create(a_lease("", namespace=namespace, generate_name="a" * 100))

    assert len(made.metadata.name) == 63


async def test_name_made_anew_gets_another_uid(cluster: Cluster, name: str, namespace: str) -> None:
    first = await cluster.create(a_lease(name, namespace=namespace))
    await cluster.delete(Lease, name, namespace=namespace)
    second = await cluster.create(a_lease(name, namespace=namespace))

    assert first.metadata.uid != second.metadata.uid


async def test_uid_is_chosen_by_the_server(cluster: Cluster, name: str, namespace: str) -> None:
    made = await cluster.create(a_lease(name, namespace=namespace, uid="mine"))

    assert made.metadata.uid != "mine"


@pytest.mark.parametrize("bad", ["", "Upper", "under_score", "-dash", "dot.", "a" * 254])
async def test_bad_name_is_refused_and_named(cluster: Cluster, namespace: str, bad: str) -> None:
    with pytest.raises(Invalid, match="name"):
        await cluster.create(a_lease(bad, namespace=namespace))


@pytest.mark.parametrize("labels", [{"a b": "x"}, {"key": "no spaces"}, {"key": "x" * 64}, {"Up.example/key": "x"}])
async def test_bad_label_is_refused_and_named(cluster: Cluster, name: str, labels: dict[str, str]) -> None:
    with pytest.raises(Invalid, match="labels"):
        await cluster.create(a_node(f"node-{name}", labels=labels))


async def test_version_of_another_object_is_refused(cluster: Cluster, name: str, namespace: str) -> None:
    made = await cluster.create(a_lease(name, namespace=namespace))
    metadata = msgspec.structs.replace(made.metadata, name=f"{name}-2")

    with pytest.raises(Invalid, match="resourceVersion"):
        await cluster.create(Lease(metadata=metadata, spec=made.spec))


async def test_marks_of_deletion_are_dropped(cluster: Cluster, name: str, namespace: str) -> None:
    made = await cluster.create(a_pod(name, namespace=namespace, deletion_grace_period_seconds=5))

    assert made.metadata.deletion_grace_period_seconds is None


async def test_a_dry_run_writes_nothing(cluster: Cluster, name: str, namespace: str) -> None:
    await cluster.create(a_lease(name, namespace=namespace), dry_run=True)

    with pytest.raises(NotFound):
        await cluster.get(Lease, name, namespace)


async def test_a_dry_run_refuses_what_would_be_refused(cluster: Cluster, namespace: str) -> None:
    with pytest.raises(Invalid, match="name"):
        await cluster.create(a_lease("Upper", namespace=namespace), dry_run=True)


async def test_a_dry_run_says_that_a_name_is_taken_only_after_all_else(
    cluster: Cluster, name: str, namespace: str
) -> None:
    await cluster.create(a_recovery(name, namespace=namespace))

    with pytest.raises(AlreadyExists):
        await cluster.create(a_recovery(name, namespace=namespace), dry_run=True)
    with pytest.raises(Invalid, match="labels"):
        await cluster.create(a_recovery(name, namespace=namespace, labels={"a b": "x"}), dry_run=True)
