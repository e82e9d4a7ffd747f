"""A controller whose certificate management cannot be switched off, beside a control plane."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.lab.build import program
from tests.lab.control_plane import ControlPlane
from tests.lab.kinds import certificates
from tests.lab.kinds.certificates import Rotated
from tests.lab.kinds.private import with_mounts
from tests.lab.modules import Module
from tests.lab.programs import Program

_CERTIFICATES = "k8s-webhook-server/serving-certs"
"""Below /tmp: hard-wired in the controllers."""
_TMP = "/tmp"


def authority(control_plane: ControlPlane, module: Module) -> Path:
    """The file with the authority of its certificate, from `start` on."""
    return _home(control_plane, module) / _CERTIFICATES / "ca.crt"


def start(
    control_plane: ControlPlane,
    module: Module,
    rotated: Rotated,
    arguments: Sequence[str],
    *,
    environment: dict[str, str] | None = None,
) -> Program:
    """
    Run the program of *module* with certificates that it accepts; `{kubeconfig}` in its arguments is filled in.

    Its namespace must exist. Raises CannotBuild, CannotMount.
    """
    home = _home(control_plane, module)
    for folder in (home / _CERTIFICATES, home / "bin"):
        folder.mkdir(parents=True, exist_ok=True)  # of an earlier start beside the same control plane
    certificates.make(rotated, home / _CERTIFICATES)
    certificates.keep(control_plane, rotated, home / _CERTIFICATES)
    control_plane.write_kubeconfig(home / "kubeconfig", control_plane.token)
    binary = program(module)
    command = [f"{_TMP}/bin/{binary.name}", *(word.format(kubeconfig=f"{_TMP}/kubeconfig") for word in arguments)]
    mounts = [(binary.parent, str(home / "bin")), (home, _TMP)]
    seen = {"TMPDIR": _TMP, "KUBECONFIG": f"{_TMP}/kubeconfig", **(environment or {})}
    return control_plane.run(module.name, with_mounts(mounts, command), environment=seen)


def _home(control_plane: ControlPlane, module: Module) -> Path:
    return control_plane.directory / module.name
