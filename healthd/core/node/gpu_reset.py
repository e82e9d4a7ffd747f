"""Whether the GPUs of a node are being reset by healthd's own hand: then its agent must not have them open. Pure."""

from __future__ import annotations

from healthd.core.api import Node
from healthd.core.api.names import LABEL_NODE_HAND
from healthd.core.node.quarantine import read_record

_GPU_RESET = "gpu-reset"


def gpus_are_reset(node: Node, boot_id: str) -> bool:
    """Of a node in quarantine, in this very boot: a label that was left behind must not blind an agent."""
    asked = node.metadata.labels.get(LABEL_NODE_HAND)
    return asked == f"{_GPU_RESET}.{boot_id}" and read_record(node) is not None
