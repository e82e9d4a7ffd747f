"""
Reading: get and list.
"""

from __future__ import annotations

import pytest

from healthd.cluster.port import Cluster, Invalid, NotFound
from healthd.core.api import Lease, Node, NodeHealth, Pod
from tests.builders import a_lease, a_node, a_nodehealth, a_pod


async def test_absent_object_is_not_found_by_name(cluster: Cluster, name: str, namespace: str) -> None:
    with pytest.raises(NotFound, match=name):
        await cluster.get(Pod, name, namespace)


async def test_kinds_do_not_mix(cluster: Cluster, name: str) -> None:
    await cluster.create(a_node(f"node-{name}"))

    with pytest.raises(NotFound):
        await cluster.get(NodeHealth, f"node-{name}")


async def test_list_of_nothing_is_empty_and_has_a_version(cluster: Cluster, namespace: str) -> None:
    listed = await cluster.list(Lease, namespace=namespace)

    assert listed.items == []
    assert listed.resource_version


async def test_list_is_ordered_by_namespace_and_name(cluster: Cluster, name: str, namespace: str) -> None:
    places = [(f"{namespace}-2", f"{name}-1"), (namespace, f"{name}-9"), (namespace, f"{name}-3")]
    for place, each in places:
        await cluster.create(a_lease(each, namespace=place))

    items = (await cluster.list(Lease)).items

    found = [(item.metadata.namespace, item.metadata.name) for item in items]
    assert [place for place in found if place in places] == sorted(places)


async def test_list_of_a_namespace_leaves_out_the_others(cluster: Cluster, name: str, namespace: str) -> None:
    await cluster.create(a_lease(name, namespace=namespace))
    await cluster.create(a_lease(name, namespace=f"{namespace}-2"))

    items = (await cluster.list(Lease, namespace=namespace)).items

    assert [item.metadata.namespace for item in items] == [namespace]


async def test_list_selects_objects_that_carry_all_labels(cluster: Cluster, name: str) -> None:
    await cluster.create(a_node(f"{name}-both", labels={"gang": name, "role": "spare"}))
    await cluster.create(a_node(f"{name}-one", labels={"gang": name}))
    await cluster.create(a_node(f"{name}-other", labels={"gang": name, "role": "worker"}))

    items = (await cluster.list(Node, labels={"gang": name, "role": "spare"})).items

    assert [item.metadata.name for item in items] == [f"{name}-both"]


async def test_empty_label_value_is_not_an_absent_label(cluster: Cluster, name: str) -> None:
    await cluster.create(a_node(f"{name}-empty", labels={"gang": name, "role": ""}))
    await cluster.create(a_node(f"{name}-absent", labels={"gang": name}))

    items = (await cluster.list(Node, labels={"gang": name, "role": ""})).items

    assert [item.metadata.name for item in items] == [f"{name}-empty"]


async def test_kind_of_cluster_scope_is_listed_whole(cluster: Cluster, name: str) -> None:
    await cluster.create(a_nodehealth(f"node-{name}"))

    items = (await cluster.list(NodeHealth)).items

    assert f"node-{name}" in [item.metadata.name for item in items]


async def test_list_selects_by_a_label_of_any_value(cluster: Cluster, name: str) -> None:
    await cluster.create(a_node(f"{name}-some", labels={f"{name}/gang": "a"}))
    await cluster.create(a_node(f"{name}-empty", labels={f"{name}/gang": ""}))
    await cluster.create(a_node(f"{name}-none"))

    items = (await cluster.list(Node, labels={f"{name}/gang": None})).items

    assert [item.metadata.name for item in items] == [f"{name}-empty", f"{name}-some"]


async def test_list_selects_one_object_by_its_name(cluster: Cluster, name: str) -> None:
    await cluster.create(a_node(name))
    await cluster.create(a_node(f"{name}-2"))

    items = (await cluster.list(Node, fields={"metadata.name": name})).items

    assert [item.metadata.name for item in items] == [name]


async def test_list_selects_by_all_fields_and_labels(cluster: Cluster, name: str, namespace: str, node: Node) -> None:
    for each, gang, where in (
        ("meant", name, node.metadata.name),
        ("other", "x", node.metadata.name),
        ("unbound", name, ""),
    ):
        await cluster.create(a_pod(f"{name}-{each}", labels={"gang": gang}, namespace=namespace, node=where))
    fields = {"spec.nodeName": node.metadata.name, "metadata.namespace": namespace}

    items = (await cluster.list(Pod, labels={"gang": name}, fields=fields)).items

    assert [item.metadata.name for item in items] == [f"{name}-meant"]


async def test_list_selects_pods_by_phase(cluster: Cluster, name: str, namespace: str, node: Node) -> None:
    for each in (f"{name}-failed", f"{name}-pending"):
        await cluster.create(a_pod(each, namespace=namespace, node=node.metadata.name))
    failed = {"status": {"phase": "Failed"}}
    await cluster.patch(Pod, f"{name}-failed", failed, namespace=namespace, subresource="status")

    items = (await cluster.list(Pod, namespace=namespace, fields={"status.phase": "Failed"})).items

    assert [item.metadata.name for item in items] == [f"{name}-failed"]


async def test_unknown_field_is_refused_and_named(cluster: Cluster) -> None:
    with pytest.raises(Invalid, match=r"spec\.color"):
        await cluster.list(Node, fields={"spec.color": "red"})
