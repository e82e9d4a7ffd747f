"""Placeholders such as `${node}` in the texts of a hand, and the facts of a node that take their place. Pure."""

from __future__ import annotations

import re
from typing import Any

from healthd.core.api import Node

_PLACEHOLDER = re.compile(r"\$\{([^}]*)\}")
_PLAIN = ("node", "node_uid", "attempt", "rung", "image", "boot_id")
_OF_NODE = ("label:", "annotation:", "provider:")
KNOWN = ", ".join((*_PLAIN, "label:KEY", "annotation:KEY", "provider:N"))
"""For messages to the author of a hand."""
LONGEST = 512
"""Characters of one fact. Labels and annotations are written by others."""


class Lacking(Exception):
    """A node lacks a fact that a hand needs. The message says which."""


def placeholders_in(text: str) -> list[str]:
    """What stands between the braces, in order."""
    return _PLACEHOLDER.findall(text)


def unknown(name: str) -> bool:
    """Whether nothing ever takes the place of `${name}`."""
    if name.startswith("provider:"):
        return not name.removeprefix("provider:").isdecimal()
    return name not in _PLAIN and not any(name.startswith(kind) and name != kind for kind in _OF_NODE)


def facts_of(
    node: Node, provider_id: str, *, attempt: int, rung: str, image: str = "", boot_id: str | None = None
) -> dict[str, str]:
    """What may take the place of placeholders for *node*. *boot_id*: None is the one that its kubelet reports."""
    parts = [part for part in provider_id.partition("://")[2].split("/") if part]
    return {
        "node": node.metadata.name,
        "node_uid": node.metadata.uid,
        "attempt": str(attempt),
        "rung": rung,
        "image": image,
        "boot_id": node.status.node_info.boot_id if boot_id is None else boot_id,
        **{f"label:{key}": value for key, value in node.metadata.labels.items()},
        **{f"annotation:{key}": value for key, value in node.metadata.annotations.items()},
        **{f"provider:{at}": part for at, part in enumerate(parts)},
    }


def filled(value: Any, facts: dict[str, str]) -> Any:
    """*value* with every placeholder replaced, once: what a fact holds is never read again. Raises Lacking."""
    if isinstance(value, str):
        return _PLACEHOLDER.sub(lambda match: _fact(match[1], facts), value)
    if isinstance(value, dict):
        return {filled(key, facts): filled(child, facts) for key, child in value.items()}
    return [filled(child, facts) for child in value] if isinstance(value, list) else value


def _fact(name: str, facts: dict[str, str]) -> str:
    value = facts.get(name, "")
    if not value:
        raise Lacking(f"the node has no {name.replace(':', ' ')}")
    if len(value) > LONGEST or not value.isprintable():
        raise Lacking(f"the {name.replace(':', ' ')} of the node is not usable")
    return value
