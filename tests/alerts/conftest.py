"""Certificates for test servers."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

import pytest


def _certificate(folder: Path, name: str) -> Path:
    """A self-signed certificate for *name*, with its key beside it."""
    at = folder / f"{name}.crt"
    made = ["openssl", "req", "-x509", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    subject = ["-subj", f"/CN={name}", "-days", "1", "-addext", f"subjectAltName=DNS:{name}"]
    subprocess.run(
        [*made, *subject, "-keyout", at.with_suffix(".key"), "-out", at],
        check=True,
        capture_output=True,
    )
    return at


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test servers are on this machine, also where its environment names a proxy."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def right_certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For the name that the test servers have."""
    return _certificate(tmp_path_factory.mktemp("right"), "localhost")


@pytest.fixture(scope="session")
def wrong_certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For another name."""
    return _certificate(tmp_path_factory.mktemp("wrong"), "other.example")


def server_tls(certificate: Path) -> ssl.SSLContext:
    """What a server with that certificate needs."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, certificate.with_suffix(".key"))
    return context
