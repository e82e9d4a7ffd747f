"""
The CustomResourceDefinitions of healthd's own kinds, generated from the structs that read and write them.

A field is declared once, in `healthd.core.api`; `kubectl explain` shows its docstring. What a struct cannot express is
in tables beside this module: `rules.py`, `bounds.py` and `columns.py`. `python -m healthd.cluster.crds` writes
`deploy/crds.yaml`; nothing reads it at run time.
"""

from __future__ import annotations

import yaml

from healthd.cluster.crds.columns import PRESENTATIONS, Presentation
from healthd.cluster.crds.rules import Schema
from healthd.cluster.crds.schema import schema_of
from healthd.core.api import RESOURCES
from healthd.core.api.meta import Slim

HEAD = """\
# healthd's own kinds. Written by `make docs` from healthd/core/api: change the structs there, not this file.
"""


def definitions() -> list[Schema]:
    """Every CustomResourceDefinition, as JSON objects."""
    return [_definition(kind, presentation) for kind, presentation in PRESENTATIONS.items()]


def as_yaml() -> str:
    """The whole file `deploy/crds.yaml`."""
    return HEAD + yaml.dump_all(definitions(), sort_keys=False, width=120, allow_unicode=True, Dumper=_ForPeople)


def _definition(kind: type[Slim], presentation: Presentation) -> Schema:
    resource = RESOURCES[kind]
    group, _, version = resource.api_version.partition("/")
    names = {
        "kind": resource.kind,
        "listKind": f"{resource.kind}List",
        "plural": resource.plural,
        "singular": resource.kind.lower(),
        "shortNames": list(presentation.short),
        "categories": ["healthd"],
    }
    served = {
        "name": version,
        "served": True,
        "storage": True,
        "subresources": {"status": {}} if resource.has_status else {},
        "additionalPrinterColumns": [column.to_schema() for column in presentation.columns],
        "schema": {"openAPIV3Schema": schema_of(kind, resource.api_version)},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{resource.plural}.{group}",
            "labels": {"app.kubernetes.io/name": "healthd", "app.kubernetes.io/part-of": "healthd"},
        },
        "spec": {
            "group": group,
            "names": names,
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "versions": [served],
        },
    }


class _ForPeople(yaml.SafeDumper):
    """Writes long texts as paragraphs, and repeats an object instead of using a YAML alias."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - the signature of PyYAML
        return True

    def represent_str(self, data: str) -> yaml.ScalarNode:
        return self.represent_scalar("tag:yaml.org,2002:str", data, style="|" if "\n" in data else None)


_ForPeople.add_representer(str, _ForPeople.represent_str)
