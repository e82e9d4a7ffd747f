"""
The paths and queries of requests to an API server. Pure.
"""

from __future__ import annotations

from urllib.parse import quote

from healthd.cluster.port import Fields, Labels
from healthd.core.api import Resource

FIELD_MANAGER = "healthd"
"""The name under which an API server records the fields that healthd wrote."""


def path(resource: Resource, namespace: str | None, name: str = "", subresource: str = "") -> str:
    """The path of a collection (*namespace* None or empty: all namespaces), an object, or its subresource."""
    root = "/api/v1" if resource.api_version == "v1" else f"/apis/{resource.api_version}"
    parts = [root]
    if resource.namespaced and namespace:
        parts += ["namespaces", quote(namespace, safe="")]
    parts += [resource.plural, *(quote(part, safe="") for part in (name, subresource) if part)]
    return "/".join(parts)


def selecting(labels: Labels | None, fields: Fields | None) -> dict[str, str]:
    """The query of a list or watch that selects only these objects."""
    query: dict[str, str] = {}
    if labels:
        query["labelSelector"] = ",".join(k if v is None else f"{k}={v}" for k, v in labels.items())
    if fields:
        query["fieldSelector"] = ",".join(f"{k}={_escaped(v)}" for k, v in fields.items())
    return query


def _escaped(value: str) -> str:
    for special in ("\\", ",", "="):
        value = value.replace(special, f"\\{special}")
    return value
