"""Controllers that read a file of configuration in which their certificate management is switched off."""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.lab.api import Json
from tests.lab.control_plane import ControlPlane
from tests.lab.programs import free_port


def link_certificate(control_plane: ControlPlane, folder: Path) -> None:
    """The certificate of the API server as `tls.key` and `tls.crt`, also where they are there from an earlier start."""
    for part in ("key", "crt"):
        link = folder / f"tls.{part}"
        link.unlink(missing_ok=True)
        link.symlink_to(control_plane.directory / f"server.{part}")


def write_config(control_plane: ControlPlane, name: str, api_version: str, port: int, **more: Json) -> Path:
    """The file; its webhooks listen on *port* with the certificate of the API server."""
    folder = control_plane.directory / name
    folder.mkdir(exist_ok=True)
    link_certificate(control_plane, folder)
    config = {
        "apiVersion": api_version,
        "kind": "Configuration",
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "webhook": {"port": port, "host": "127.0.0.1", "certDir": str(folder)},
        "metrics": {"bindAddress": "0"},
        "health": {"healthProbeBindAddress": f"127.0.0.1:{free_port()}"},
        "clientConnection": {"qps": 500, "burst": 1000},
        **more,
    }
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(config))
    return path
