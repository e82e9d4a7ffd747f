"""The shipped manifests as a person applies them: with a component, and before Kubernetes 1.36 with that one."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import yaml

from tests.deploy.manifests import DEPLOY
from tests.lab.control_plane import ControlPlane
from tests.lab.kubernetes import HAS_MUTATING_POLICIES

OLDER = "before-1.36"


def with_component(name: str, folder: Path, overlay: Path = DEPLOY) -> Path:
    """A kustomization of somebody who uses *overlay* with one of our components."""
    return _with_components([name], folder, overlay)


def rendered(control_plane: ControlPlane, overlay: Path = DEPLOY, *, component: str = "") -> str:
    """The objects that *overlay*, with *component* where one is named, makes for the Kubernetes of this lab."""
    wanted = [component] if component else []
    if not HAS_MUTATING_POLICIES and component != OLDER:
        wanted.append(OLDER)
    with tempfile.TemporaryDirectory() as folder:
        own = _with_components(wanted, Path(folder), overlay) if wanted else overlay
        return control_plane.kubectl("kustomize", str(own))


def _with_components(names: Sequence[str], folder: Path, overlay: Path) -> Path:
    (folder / "ours").symlink_to(overlay)
    (folder / "components").symlink_to(DEPLOY / "components")
    own = folder / "own"
    own.mkdir()
    lines = {"resources": ["../ours"], "components": [f"../components/{name}" for name in names]}
    (own / "kustomization.yaml").write_text(yaml.safe_dump(lines))
    return own
