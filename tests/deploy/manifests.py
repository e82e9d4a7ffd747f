"""The shipped manifests as objects, without kustomize: what the files say before names and images are put in."""

from __future__ import annotations

import copy
from functools import cache
from pathlib import Path
from typing import Any

from tests import quick_yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"

Manifest = dict[str, Any]


def all_of(path: Path) -> list[Manifest]:
    """Every object in a file."""
    return copy.deepcopy(_read(path.read_text()))


@cache
def _read(text: str) -> list[Manifest]:
    return [manifest for manifest in quick_yaml.load_all(text) if manifest]


def shipped() -> list[Manifest]:
    """Every object that the kustomization lists."""
    (kustomization,) = all_of(DEPLOY / "kustomization.yaml")
    return [manifest for name in kustomization["resources"] for manifest in all_of(DEPLOY / name)]


def of_kind(kind: str) -> dict[str, Manifest]:
    """The shipped objects of one kind, by name."""
    return {manifest["metadata"]["name"]: manifest for manifest in shipped() if manifest["kind"] == kind}


def component(name: str) -> list[Manifest]:
    """Every object that a component adds."""
    folder = DEPLOY / "components" / name
    (kustomization,) = all_of(folder / "kustomization.yaml")
    return [manifest for file in kustomization.get("resources", []) for manifest in all_of(folder / file)]


def pod_specs() -> dict[str, Manifest]:
    """The pods that are made, by the name of what makes them."""
    made = {**of_kind("DaemonSet"), **of_kind("Deployment")}
    return {name: manifest["spec"]["template"]["spec"] for name, manifest in made.items()}


def containers() -> dict[str, Manifest]:
    """Every container, by name."""
    specs = pod_specs().values()
    return {one["name"]: one for spec in specs for one in [*spec.get("initContainers", []), *spec["containers"]]}
