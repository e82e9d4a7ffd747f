"""Where the API server is and who we are: from a pod's files, and from a kubeconfig."""

from __future__ import annotations

import base64
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from aiohttp import web

from healthd.cluster.port import Unavailable, Unusable
from healthd.cluster.remote import in_cluster
from healthd.cluster.remote.kubeconfig import from_kubeconfig
from tests.cluster.remote.scripted import Scripted, says, serving
from tests.fakes import START, ManualClock

ENVIRON = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}
PLUGIN = """#!/bin/sh
echo run >> "$0.runs"
echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":STATUS}'
"""


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate, with its key beside it."""
    at = tmp_path_factory.mktemp("authority")
    made = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-subj",
        "/CN=x",
        "-days",
        "1",
        "-addext",
        "subjectAltName=IP:127.0.0.1",
    ]
    subprocess.run([*made, "-keyout", at / "ca.key", "-out", at / "ca.crt"], check=True, capture_output=True)
    return at / "ca.crt"


@pytest.fixture
def files(tmp_path: Path, authority: Path) -> Path:
    """The files of a pod's service account."""
    (tmp_path / "token").write_text("one\n")
    (tmp_path / "ca.crt").write_bytes(authority.read_bytes())
    return tmp_path


@pytest.mark.slow
async def test_pod_reaches_its_own_api_server(files: Path, clock: ManualClock) -> None:
    access = await in_cluster(clock, environ=ENVIRON, files=files).access()

    assert access.url == "https://10.96.0.1:443"
    assert access.authorization == "Bearer one"
    assert access.tls is not None
    assert access.tls.verify_mode is ssl.CERT_REQUIRED
    assert len(access.tls.get_ca_certs()) == 1


async def test_address_of_version_six_is_bracketed(files: Path, clock: ManualClock) -> None:
    environ = {**ENVIRON, "KUBERNETES_SERVICE_HOST": "fd00::1"}

    assert (await in_cluster(clock, environ=environ, files=files).access()).url == "https://[fd00::1]:443"


async def test_replaced_token_is_read_within_a_minute_or_when_the_old_one_is_refused(
    files: Path, clock: ManualClock
) -> None:
    connection = in_cluster(clock, environ=ENVIRON, files=files)
    first = await connection.access()
    (files / "token").write_text("two")
    clock.advance(timedelta(seconds=59))
    soon = await connection.access()
    clock.advance(timedelta(seconds=1))
    later = await connection.access()
    (files / "token").write_text("three")
    refused = await connection.access(fresh=True)

    assert [each.authorization[7:] for each in (first, soon, later, refused)] == ["one", "one", "two", "three"]
    assert later.tls is first.tls


async def test_replaced_authority_is_trusted(files: Path, clock: ManualClock) -> None:
    connection = in_cluster(clock, environ=ENVIRON, files=files)
    former = await connection.access()
    (files / "ca.crt").write_bytes((files / "ca.crt").read_bytes() + b"\n")

    assert (await connection.access(fresh=True)).tls is not former.tls


async def test_token_that_cannot_be_read_again_stays_in_use(files: Path, clock: ManualClock) -> None:
    connection = in_cluster(clock, environ=ENVIRON, files=files)
    former = await connection.access()
    (files / "token").unlink()

    assert await connection.access(fresh=True) == former


async def test_process_outside_of_a_pod_is_reported_so(clock: ManualClock) -> None:
    with pytest.raises(Unusable, match="kubeconfig"):
        in_cluster(clock, environ={})


async def test_pod_without_a_service_account_is_reported_so(clock: ManualClock, tmp_path: Path) -> None:
    with pytest.raises(Unusable, match="token"):
        await in_cluster(clock, environ=ENVIRON, files=tmp_path).access()


def a_kubeconfig(path: Path, user: dict[str, Any], **cluster: Any) -> Path:
    """A file with the contexts `here` (current) and `there`."""
    cluster = {"server": "https://10.0.0.1:6443", **cluster}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "here", "cluster": cluster}, {"name": "there", "cluster": {"server": "https://there"}}],
        "users": [{"name": "me", "user": user}],
        "contexts": [{"name": each, "context": {"cluster": each, "user": "me"}} for each in ("here", "there")],
        "current-context": "here",
    }
    path.write_text(yaml.safe_dump(config))
    return path


def a_plugin(path: Path, **status: str) -> dict[str, Any]:
    """A user whose credentials a program prints."""
    path.write_text(PLUGIN.replace("STATUS", msgspec.json.encode(status).decode()))
    path.chmod(0o700)
    return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(path), "interactiveMode": "Never"}}


def runs(plugin: Path) -> int:
    return len(Path(f"{plugin}.runs").read_text().splitlines())


async def test_token_and_address_come_from_the_current_context(tmp_path: Path, clock: ManualClock) -> None:
    access = await from_kubeconfig(a_kubeconfig(tmp_path / "config", {"token": "t"}), clock=clock).access()

    assert (access.url, access.authorization) == ("https://10.0.0.1:6443", "Bearer t")
    assert access.source == f"kubeconfig {tmp_path}/config, context here"
    assert access.proxy is None


async def test_another_context_can_be_named(tmp_path: Path, clock: ManualClock) -> None:
    path = a_kubeconfig(tmp_path / "config", {"token": "t"})

    assert (await from_kubeconfig(path, "there", clock=clock).access()).url == "https://there"


async def test_what_the_cluster_asks_of_connections_is_kept(
    tmp_path: Path, clock: ManualClock, authority: Path
) -> None:
    data = base64.b64encode(authority.read_bytes()).decode()
    extra = {"certificate-authority-data": data, "tls-server-name": "api", "proxy-url": "http://proxy:3128"}
    access = await from_kubeconfig(a_kubeconfig(tmp_path / "config", {"token": "t"}, **extra), clock=clock).access()

    assert access.tls is not None
    assert len(access.tls.get_ca_certs()) == 1
    assert (access.server_name, access.proxy) == ("api", "http://proxy:3128")


async def test_verification_is_left_out_only_where_the_file_says_so(tmp_path: Path, clock: ManualClock) -> None:
    modes = []
    for skip in (False, True):
        path = a_kubeconfig(tmp_path / "config", {"token": "t"}, **{"insecure-skip-tls-verify": skip})
        tls = (await from_kubeconfig(path, clock=clock).access()).tls
        modes += [tls.verify_mode if tls else None]

    assert modes == [ssl.CERT_REQUIRED, ssl.CERT_NONE]


async def test_client_certificate_is_used(tmp_path: Path, clock: ManualClock, authority: Path) -> None:
    user = {"client-certificate": str(authority), "client-key": str(authority.with_suffix(".key"))}
    access = await from_kubeconfig(a_kubeconfig(tmp_path / "config", user), clock=clock).access()

    assert access.authorization == ""


async def test_client_certificate_that_does_not_load_is_reported(tmp_path: Path, clock: ManualClock) -> None:
    (tmp_path / "bad").write_text("no certificate")
    user = {"client-certificate": str(tmp_path / "bad"), "client-key": str(tmp_path / "bad")}

    with pytest.raises(Unusable, match="config"):
        await from_kubeconfig(a_kubeconfig(tmp_path / "config", user), clock=clock).access()


async def test_plugin_runs_again_shortly_before_its_token_expires(tmp_path: Path, clock: ManualClock) -> None:
    expiry = (START + timedelta(hours=1)).isoformat().replace("+00:00", "Z")
    user = a_plugin(tmp_path / "plugin", token="p", expirationTimestamp=expiry)
    connection = from_kubeconfig(a_kubeconfig(tmp_path / "config", user), clock=clock)
    token = (await connection.access()).authorization
    clock.advance(timedelta(minutes=58))
    await connection.access()
    before = runs(tmp_path / "plugin")
    clock.advance(timedelta(minutes=1))
    await connection.access()

    assert token == "Bearer p"
    assert (before, runs(tmp_path / "plugin")) == (1, 2)


async def test_many_refusals_at_once_run_the_plugin_once(tmp_path: Path, clock: ManualClock) -> None:
    connection = from_kubeconfig(
        a_kubeconfig(tmp_path / "config", a_plugin(tmp_path / "plugin", token="p")), clock=clock
    )
    await connection.access()
    clock.advance(timedelta(seconds=10))
    for _ in range(5):
        await connection.access(fresh=True)

    assert runs(tmp_path / "plugin") == 2


async def test_absent_file_is_reported(tmp_path: Path, clock: ManualClock) -> None:
    with pytest.raises(Unusable, match="no such file"):
        await from_kubeconfig(tmp_path / "absent", clock=clock).access()


async def test_absent_context_is_reported(tmp_path: Path, clock: ManualClock) -> None:
    with pytest.raises(Unusable, match="nowhere"):
        await from_kubeconfig(a_kubeconfig(tmp_path / "config", {}), "nowhere", clock=clock).access()


def an_oidc_user(provider: str, **more: str) -> dict[str, Any]:
    """A user whose token expired in 1970."""
    payload = base64.b64encode(b'{"exp":1}').decode().rstrip("=")
    config = {
        "client-id": "healthd",
        "client-secret": "s",
        "idp-issuer-url": provider,
        "id-token": f"x.{payload}.y",
        "refresh-token": "refresh-1",
        **more,
    }
    return {"auth-provider": {"name": "oidc", "config": config}}


@asynccontextmanager
async def an_oidc_provider(authority: Path) -> AsyncIterator[Scripted]:
    """Behind a certificate that only *authority* vouches for."""
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(authority, authority.with_suffix(".key"))
    scripted: list[Scripted] = []

    async def discover(request: web.Request) -> web.StreamResponse:
        return web.json_response({"token_endpoint": f"{scripted[0].url}/token"})

    renewed = says(200, {"id_token": "id-2", "refresh_token": "refresh-2"}, Content_Type="application/json")
    async with serving(discover, renewed, tls=tls) as server:
        scripted.append(server)
        yield server


async def test_renewed_oidc_token_is_used_and_written_back(tmp_path: Path, clock: ManualClock, authority: Path) -> None:
    data = base64.b64encode(authority.read_bytes()).decode()
    async with an_oidc_provider(authority) as provider:
        user = an_oidc_user(provider.url, **{"idp-certificate-authority-data": data})
        path = a_kubeconfig(tmp_path / "config", user)
        access = await from_kubeconfig(path, clock=clock).access()

    kept = yaml.safe_load(path.read_text())["users"][0]["user"]["auth-provider"]["config"]
    assert access.authorization == "Bearer id-2"
    assert (kept["id-token"], kept["refresh-token"]) == ("id-2", "refresh-2")
    assert b"refresh-1" in provider.asked[1].body


async def test_oidc_provider_that_no_one_vouches_for_gets_no_secret(
    tmp_path: Path, clock: ManualClock, authority: Path
) -> None:
    async with an_oidc_provider(authority) as provider:
        path = a_kubeconfig(tmp_path / "config", an_oidc_user(provider.url))
        with pytest.raises(Unavailable, match="certificate"):
            await from_kubeconfig(path, clock=clock).access()

    assert provider.asked == []


async def test_oidc_provider_that_does_not_answer_is_named(tmp_path: Path, clock: ManualClock) -> None:
    path = a_kubeconfig(tmp_path / "config", an_oidc_user("https://idp.invalid"))

    with pytest.raises(Unavailable, match=r"idp\.invalid:443: the name cannot be resolved$"):
        await from_kubeconfig(path, clock=clock).access()


async def test_oidc_token_that_cannot_be_renewed_is_reported(tmp_path: Path, clock: ManualClock) -> None:
    path = a_kubeconfig(tmp_path / "config", an_oidc_user("https://idp.invalid", **{"refresh-token": ""}))

    with pytest.raises(Unusable, match="refresh-token"):
        await from_kubeconfig(path, clock=clock).access()
