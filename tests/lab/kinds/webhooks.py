"""
Webhooks of a controller that runs outside of the cluster: called by address instead of through a Service.

Everything else of them is as their project ships it.
"""

from __future__ import annotations

import base64
import socket
from collections.abc import Callable
from pathlib import Path

from tests import quick_yaml
from tests.lab.api import ApiError, Json
from tests.lab.control_plane import ControlPlane

_KINDS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")


def by_address(
    manifest: Path,
    port: int,
    authority: Path,
    *,
    name: Callable[[str], str],
    pods_with: str = "",
    keep: Callable[[str], bool] = lambda path: True,
) -> list[Json]:
    """
    The webhook configurations in *manifest*, for a controller that listens on *port* of this machine.

    *name* makes the name of a configuration from the one in the manifest. The webhooks for pods see only pods with the
    label *pods_with*. *keep* says of the path of a webhook whether it is in use.
    """
    bundle = base64.b64encode(authority.read_bytes()).decode()
    found: list[Json] = [each for each in quick_yaml.load_all(manifest.read_text()) if each and each["kind"] in _KINDS]
    for each in found:
        each["metadata"]["name"] = name(each["metadata"]["name"])
        each["webhooks"] = [hook for hook in each["webhooks"] if keep(_path(hook))]
        for hook in each["webhooks"]:
            path = _path(hook)
            hook["clientConfig"] = {"url": f"https://127.0.0.1:{port}{path}", "caBundle": bundle}
            if path.endswith("-pod") and pods_with:
                hook["objectSelector"] = {"matchExpressions": [{"key": pods_with, "operator": "Exists"}]}
    return found


def _path(hook: Json) -> str:
    return str(hook["clientConfig"]["service"]["path"])


def remove(control_plane: ControlPlane, configurations: list[Json]) -> None:
    """Delete what was applied: a webhook whose controller has ended refuses everything that it is asked about."""
    for each in configurations:
        plural = f"{each['kind'].lower()}s"
        control_plane.api.delete(f"/apis/admissionregistration.k8s.io/v1/{plural}/{each['metadata']['name']}")


def listens(port: int) -> bool:
    """True when somebody listens on *port* of this machine."""
    with socket.socket() as trying:
        return trying.connect_ex(("127.0.0.1", port)) == 0


def accepts(control_plane: ControlPlane, path: str, trial: Json) -> bool:
    """True once an object passes all webhooks of its kind. Nothing is kept of it."""
    try:
        control_plane.api.create(f"{path}?dryRun=All", trial)
    except ApiError:
        return False
    return True
