"""
Certificates for controllers whose certificate management cannot be switched off.

Such a controller keeps an authority and a certificate in a Secret, and puts that authority into its own webhooks. It
makes both anew unless it finds what it would have made: an authority with its own name as a DNS name and a PKCS#1 key,
and a certificate for the DNS name of its Service. These are that, and good for 127.0.0.1 as well.
"""

from __future__ import annotations

import base64
import http.client
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.lab.api import ApiError, Json
from tests.lab.control_plane import ControlPlane

_FILES = ("ca.crt", "ca.key", "tls.crt", "tls.key")
_DAYS = ("-days", "3650")


@dataclass(frozen=True, kw_only=True)
class Rotated:
    """What one controller looks for."""

    authority: str
    """The common name of its authority."""
    namespace: str
    service: str
    secret: str


def make(rotated: Rotated, folder: Path) -> None:
    """Write ca.crt, ca.key, tls.crt and tls.key into *folder*, which exists."""
    name, service = rotated.authority, f"{rotated.service}.{rotated.namespace}.svc"
    is_authority = _extensions(
        f"subjectAltName=DNS:{name}",
        "basicConstraints=critical,CA:TRUE",
        "keyUsage=critical,digitalSignature,keyEncipherment,keyCertSign",
    )
    is_server = _extensions(
        f"subjectAltName=DNS:{service},IP:127.0.0.1",
        "basicConstraints=critical,CA:FALSE",
        "extendedKeyUsage=serverAuth",
    )
    signed = ("-CA", "ca.crt", "-CAkey", "ca.key", "-newkey", "rsa:2048", "-nodes", "-keyout", "tls.key")
    _openssl(folder, "genrsa", "-traditional", "-out", "ca.key", "2048")
    _openssl(folder, "req", "-x509", *_DAYS, *_subject(name), *is_authority, "-key", "ca.key", "-out", "ca.crt")
    _openssl(folder, "req", "-x509", *_DAYS, *_subject(service), *is_server, *signed, "-out", "tls.crt")


def keep(control_plane: ControlPlane, rotated: Rotated, folder: Path) -> None:
    """Make the Secret, in the namespace of the controller; one of an earlier start beside this control plane goes."""
    data = {name: base64.b64encode((folder / name).read_bytes()).decode() for name in _FILES}
    secret: Json = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": rotated.secret}, "data": data}
    secrets = f"/api/v1/namespaces/{rotated.namespace}/secrets"
    try:
        control_plane.api.create(secrets, secret)
    except ApiError as error:
        if error.status != http.client.CONFLICT:
            raise
        control_plane.api.call("PUT", f"{secrets}/{rotated.secret}", secret)


def _subject(name: str) -> tuple[str, str]:
    return "-subj", f"/O=healthd lab/CN={name}"


def _extensions(*each: str) -> list[str]:
    return [word for extension in each for word in ("-addext", extension)]


def _openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)
