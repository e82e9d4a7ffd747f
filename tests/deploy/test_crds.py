"""The CustomResourceDefinitions follow the structs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from healthd.cluster.crds import as_yaml, definitions
from healthd.core.api import RESOURCES, NodeHealth, Recovery

DEPLOY = Path(__file__).parents[2] / "deploy"
KINDS = {definition["spec"]["names"]["kind"]: definition for definition in definitions()}


def test_the_file_is_what_the_structs_say() -> None:
    written = (DEPLOY / "crds.yaml").read_text()

    assert written == as_yaml(), "deploy/crds.yaml is out of date: run `make docs`"


@pytest.mark.parametrize("kind", [NodeHealth, Recovery])
def test_names_are_those_of_the_table_of_kinds(kind: type[NodeHealth | Recovery]) -> None:
    resource = RESOURCES[kind]
    spec = KINDS[resource.kind]["spec"]

    assert f"{spec['group']}/{spec['versions'][0]['name']}" == resource.api_version
    assert spec["names"]["plural"] == resource.plural
    assert (spec["scope"] == "Namespaced") is resource.namespaced
    assert ("status" in spec["versions"][0]["subresources"]) is resource.has_status


@pytest.mark.parametrize("kind", KINDS)
def test_every_column_shows_a_field_that_exists(kind: str) -> None:
    version = KINDS[kind]["spec"]["versions"][0]
    schema = version["schema"]["openAPIV3Schema"]
    paths = [column["jsonPath"] for column in version["additionalPrinterColumns"]]

    assert [path for path in paths if not _reaches(schema, path)] == [".metadata.creationTimestamp"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_is_explained(kind: str) -> None:
    schema = KINDS[kind]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]

    assert [path for path in _unexplained(schema, kind) if not path.endswith(".metadata")] == []


def _unexplained(schema: dict[str, Any], path: str) -> list[str]:
    below = {f"{path}.{name}": field for name, field in schema.get("properties", {}).items()}
    here = [where for where, field in below.items() if not field.get("description")]
    fields = [*below.items(), (path, schema.get("items", {}))]
    return here + [found for where, field in fields if field for found in _unexplained(field, where)]


def _reaches(schema: dict[str, Any], path: str) -> bool:
    for name in path.strip(".").split("."):
        schema = schema.get("properties", {}).get(name, {})
    return bool(schema)
