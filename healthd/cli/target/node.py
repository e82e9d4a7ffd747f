"""What a cluster knows of one node: how many devices it should have."""

from __future__ import annotations

import argparse

from healthd.cli.errors import UserError
from healthd.cli.target.target import Target, open_target
from healthd.cluster.port import Forbidden, NotFound
from healthd.core.api import HardwareHistory, MachineHistory, Node, NodeHealth, NodeHealthStatus
from healthd.core.api.names import SYSTEM_NAMESPACE
from healthd.core.node.expected_devices import ExpectedDevices, expected_devices
from healthd.core.reliability.history import machine_of, object_name

"""Where healthd itself runs, and its histories are."""


async def known_devices(args: argparse.Namespace, name: str) -> ExpectedDevices:
    """The devices that node *name* should have, by the cluster that *args* mean. Raises UserError."""
    async with open_target(args) as found:
        try:
            node = await found.cluster.get(Node, name)
        except NotFound:
            raise UserError(f"{found.name} has no node {name!r}") from None
        return await expected_of(found, node)


async def expected_of(found: Target, node: Node) -> ExpectedDevices:
    """The devices that *node* should have. What may not be read, or is not there yet, says nothing."""
    return expected_devices(node, await _status(found, node), await _history(found, node))


async def _status(found: Target, node: Node) -> NodeHealthStatus:
    try:
        return (await found.cluster.get(NodeHealth, node.metadata.name)).status
    except (NotFound, Forbidden):
        return NodeHealthStatus()


async def _history(found: Target, node: Node) -> MachineHistory | None:
    for machine in (machine_of(node), f"node/{node.metadata.name}"):
        try:
            return (await found.cluster.get(HardwareHistory, object_name(machine), namespace=SYSTEM_NAMESPACE)).spec
        except (NotFound, Forbidden):
            continue
    return None
