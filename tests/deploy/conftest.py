"""A control plane with healthd installed by the shipped manifests."""

from __future__ import annotations

import pytest

from healthd.cluster.crds import definitions
from tests.deploy.kustomized import rendered
from tests.lab.control_plane import ControlPlane
from tests.lab.programs import wait_until

KINDS = [definition["metadata"]["name"] for definition in definitions()]


@pytest.fixture(scope="module")
def installed(control_plane: ControlPlane) -> ControlPlane:
    """`kubectl apply -k deploy/`, and healthd's kinds are served."""
    control_plane.apply(rendered(control_plane))
    await_kinds(control_plane)
    return control_plane


def await_kinds(control_plane: ControlPlane) -> None:
    """Return when healthd's kinds are served. Raises LabError."""
    for kind in KINDS:
        wait_until(f"served: {kind}", lambda kind=kind: _is_established(control_plane, kind), limit=30)  # type: ignore[misc]


def _is_established(control_plane: ControlPlane, kind: str) -> bool:
    found = control_plane.api.get(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{kind}")
    standing = {one["type"] for one in found.get("status", {}).get("conditions", []) if one["status"] == "True"}
    return "Established" in standing
