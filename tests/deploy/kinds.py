"""
The gang kinds that are described by data, at an API server without their operators: definitions that admit anything,
the components of `deploy/` that grant the controller its rights to them, and gangs as their users write them.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from healthd.core.api import ObjectMeta
from healthd.core.config.gang_kinds import KindDescription
from healthd.gangs.kinds import SHIPPED
from healthd.gangs.parts import templates
from healthd.gangs.switch import Switch
from tests.deploy.accounts import SYSTEM
from tests.deploy.manifests import DEPLOY
from tests.gangs.described import SPECS
from tests.lab.api import Json
from tests.lab.control_plane import ControlPlane

KINDS: Mapping[str, KindDescription] = {each.name: each for each in SHIPPED}


def define(control_plane: ControlPlane, kinds: Iterable[KindDescription] = SHIPPED) -> None:
    """The kinds are served."""
    for kind in kinds:
        control_plane.kubectl("apply", "--server-side", "-f", "-", input=json.dumps(definition(kind)))
    for kind in kinds:
        control_plane.wait_until_served(f"/apis/{kind.api_version}/{kind.plural}")


def definition(kind: KindDescription) -> Json:
    """A definition of *kind* that admits any spec and status."""
    group, _, version = kind.api_version.partition("/")
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    served = {
        "name": version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": anything},
        "subresources": {"status": {}},
    }
    names = {"plural": kind.plural, "singular": kind.name.lower(), "kind": kind.kind, "listKind": f"{kind.kind}List"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{group}"},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [served]},
    }


def grant(control_plane: ControlPlane, *components: str) -> None:
    """Apply these components; none: all that are about gang kinds."""
    folders = [DEPLOY / "components" / name for name in components]
    for file in [each / "rbac.yaml" for each in folders] or sorted(DEPLOY.glob("components/*/rbac.yaml")):
        control_plane.kubectl("apply", "--server-side", "-n", SYSTEM, "-f", str(file))


def path_of(kind: KindDescription, namespace: str) -> str:
    """Where the API server keeps the objects of *kind*."""
    return f"/apis/{kind.api_version}/namespaces/{namespace}/{kind.plural}"


def manifest(
    kind: KindDescription,
    name: str,
    *,
    is_off: bool = False,
    notes: Json | None = None,
    spec: Json | None = None,
    **meta: Any,
) -> Json:
    """A gang of four, which asks for healthd unless *notes* say otherwise; *spec* is merged into its own."""
    annotations = {"healthd.dev/restart": "enabled"} if notes is None else notes
    spec = _merged(_merged(SPECS[kind.name], switched(kind, is_off)["spec"]), spec or {})
    metadata = {"name": name, "annotations": annotations, **meta}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}


def switched(kind: KindDescription, is_off: bool) -> Json:
    """The patch that stops or starts a gang."""
    switch, whole = Switch(kind), {"spec": SPECS[kind.name]}
    return switch.suspending(is_off) or (switch.stopped(whole) if is_off else copy.deepcopy(whole))


def noted(kind: KindDescription) -> str:
    """What healthd notes of a gang that it stops."""
    return Switch(kind).note(ObjectMeta(), {"spec": SPECS[kind.name]}) or "1"


def with_template(kind: KindDescription, change: Callable[[Json], object]) -> Json | None:
    """A patch that writes back a gang's spec with the last of its pod templates changed; None where it has none."""
    spec = copy.deepcopy(SPECS[kind.name])
    found = list(templates(kind, {"spec": spec}))
    if not found:
        return None
    change(found[-1])
    return {"spec": spec}


def _merged(old: Mapping[str, Any], patch: Mapping[str, Any]) -> Json:
    """Without the keys that a merge patch takes away."""
    new = copy.deepcopy(dict(old))
    for key, value in patch.items():
        new[key] = _merged(new.get(key, {}), value) if isinstance(value, Mapping) else value
    return new
