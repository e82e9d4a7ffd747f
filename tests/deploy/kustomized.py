"""The shipped manifests as a person applies them: with a component, and before Kubernetes 1.36 with that one."""

from __future__ import annotations

import tempfile
from pathlib import Path

import yaml

from tests.deploy.manifests import DEPLOY
from tests.lab.control_plane import ControlPlane
from tests.lab.kubernetes import HAS_MUTATING_POLICIES


def with_component(name: str, folder: Path, overlay: Path = DEPLOY) -> Path:
    """A kustomization of somebody who uses *overlay* with one of our components."""
    (folder / "ours").symlink_to(overlay)
    (folder / "components").symlink_to(DEPLOY / "components")
    own = folder / "own"
    own.mkdir()
    lines = {"resources": ["../ours"], "components": [f"../components/{name}"]}
    (own / "kustomization.yaml").write_text(yaml.safe_dump(lines))
    return own


def rendered(control_plane: ControlPlane, overlay: Path = DEPLOY) -> str:
    """The objects that *overlay* makes for the Kubernetes of this lab."""
    if HAS_MUTATING_POLICIES:
        return control_plane.kubectl("kustomize", str(overlay))
    with tempfile.TemporaryDirectory() as folder:
        return control_plane.kubectl("kustomize", str(with_component("before-1.36", Path(folder), overlay)))
