"""JSON schemas of an API server's own kinds, from its own description, for tools that want them as files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.lab.control_plane import ControlPlane

_DEFINITIONS = "definitions.json"


def write_schemas(control_plane: ControlPlane, into: Path) -> str:
    """One file for each kind, which refers to one with all definitions; answers kubeconform's `-schema-location`."""
    definitions = control_plane.api.get("/openapi/v2")["definitions"]
    (into / _DEFINITIONS).write_text(json.dumps({"definitions": {n: _strict(d) for n, d in definitions.items()}}))
    for name, definition in definitions.items():
        for kind in definition.get("x-kubernetes-group-version-kind", []):
            group = kind["group"].split(".")[0]  # all that kubeconform puts into the name of a file
            file = into / f"{kind['kind']}{f'-{group}' if group else ''}-{kind['version']}.json".lower()
            file.write_text(json.dumps({"$ref": f"{_DEFINITIONS}#/definitions/{name}"}))
    return str(into / "{{.ResourceKind}}{{.KindSuffix}}.json")


def _strict(schema: dict[str, Any]) -> dict[str, Any]:
    """No field that is not named, and what may be a number or a text may be either."""
    if schema.get("format") == "int-or-string":
        return {"type": ["string", "integer"]}
    strict = {key: value for key, value in schema.items() if not key.startswith("x-")}
    if "$ref" in strict:
        return {"$ref": strict["$ref"].replace("#/", f"{_DEFINITIONS}#/")}
    if "properties" in strict:
        strict["properties"] = {name: _strict(one) for name, one in strict["properties"].items()}
        strict.setdefault("additionalProperties", False)
    for below in ("items", "additionalProperties"):
        if isinstance(strict.get(below), dict):
            strict[below] = _strict(strict[below])
    return strict
