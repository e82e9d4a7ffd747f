"""Who sees what of the live page, at a real API server, with the rights of deploy/components/page."""

from __future__ import annotations

import asyncio
import subprocess
import time
from pathlib import Path

import aiohttp
import pytest

from healthd.clock import SystemClock
from healthd.controller.web.access import KEPT_FOR
from tests.controller.web.pages import Stream, a_stream
from tests.kubernetes.gangs import GANGS
from tests.kubernetes.page_viewers import Viewers, asked, bearer, page_of, signed
from tests.kubernetes.replicas import Replicas
from tests.kubernetes.scenario import Scenario
from tests.lab.control_plane import ControlPlane
from tests.lab.programs import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.xdist_group("page access")]

TOKEN = {"address": "127.0.0.1:0", "access": "token"}


@pytest.fixture
def viewers(scenario: Scenario, kubernetes: ControlPlane) -> Viewers:
    return Viewers(kubernetes, scenario.namespace)


async def a_gang_in(*stages: Scenario) -> None:
    """A gang in the namespace of each; none of its pods runs."""
    for stage in stages:
        stage.apply(*GANGS["Job"].write(stage.pod_spec, {}, 1))


async def seen_by(url: str, token: str) -> tuple[set[str], bool]:
    """The namespaces whose gangs the holder of a token sees, and whether he sees nodes."""
    async with a_stream(url, bearer(token)) as stream:
        _, everything = await stream.next()
        return {each["row"]["namespace"] for each in everything["gangs"].values()}, bool(everything["nodes"])


async def test_a_viewer_sees_the_namespaces_that_he_may_read(
    scenario: Scenario, other_stage: Scenario, replicas: Replicas, viewers: Viewers
) -> None:
    await a_gang_in(scenario, other_stage)
    scenario.add_nodes(1)
    (replica,) = await replicas.add(web=TOKEN)
    url = await page_of(replica)
    one, both, admin = map(viewers.add, ("one", "both", "admin"))
    viewers.grant("one", scenario.namespace)
    viewers.grant("both", scenario.namespace)
    viewers.grant("both", other_stage.namespace)
    viewers.grant_everything("admin")

    assert await seen_by(url, one) == ({scenario.namespace}, False)
    assert await seen_by(url, both) == ({scenario.namespace, other_stage.namespace}, False)
    assert await seen_by(url, admin) == ({scenario.namespace, other_stage.namespace}, True)
    other = f"{url}/api/gang?namespace={other_stage.namespace}&name=job/llama"
    assert (await asked(url, **bearer(viewers.add("nothing"))))[0] == 403
    assert await _status(other, one) == 404
    assert await _status(other, both) == 200


async def _status(url: str, token: str) -> int:
    async with aiohttp.ClientSession(headers=bearer(token)) as client, client.get(url) as answer:
        return answer.status


async def test_a_token_that_the_api_server_does_not_take_opens_nothing(
    scenario: Scenario, replicas: Replicas, viewers: Viewers, kubernetes: ControlPlane, tmp_path: Path
) -> None:
    await a_gang_in(scenario)
    (replica,) = await replicas.add(web=TOKEN)
    url = await page_of(replica)
    good = viewers.add("ann")
    viewers.add("gone")
    gone = viewers.token("gone")
    viewers.grant("ann", scenario.namespace)
    viewers.kubectl("delete", "serviceaccount", "gone")
    past = int(SystemClock().now().timestamp()) - 3600
    refused = {
        "none": "",
        "no token at all": "ann",
        "expired": viewers.signed_again(good, exp=past, iat=past - 600, nbf=past - 600),
        "of a key of another cluster": foreign_token(kubernetes, good, tmp_path),
        "for another audience": viewers.token_for("https://elsewhere.example", "ann"),
        "of an account that is deleted": gone,
    }

    answers = {what: await asked(url, **bearer(token)) for what, token in refused.items()}

    assert {what: status for what, (status, _) in answers.items()} == dict.fromkeys(refused, 401)
    assert all("kubectl create token" in text for _, text in answers.values())
    assert (await asked(url, **bearer(viewers.signed_again(good))))[0] == 200
    assert await seen_by(url, good) == ({scenario.namespace}, False)


def foreign_token(control_plane: ControlPlane, token: str, folder: Path) -> str:
    """The claims of *token*, signed with a key that the API server does not have."""
    key = folder / "foreign.key"
    curve = ["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", str(key)]
    subprocess.run(curve, check=True, capture_output=True)
    return signed(str(key), token, {})


async def test_without_the_component_no_viewer_sees_anything_and_the_page_says_why(
    scenario: Scenario, replicas: Replicas, viewers: Viewers, kubernetes: ControlPlane
) -> None:
    await a_gang_in(scenario)
    (replica,) = await replicas.add(web=TOKEN)
    url, token = await page_of(replica), viewers.add("ann")
    viewers.grant("ann", scenario.namespace)
    binding = kubernetes.kubectl("get", "clusterrolebinding", "healthd-controller-page", "-o", "yaml")
    kubernetes.kubectl("delete", "clusterrolebinding", "healthd-controller-page")
    try:
        status, why = await asked(url, **bearer(token))
    finally:
        kubernetes.kubectl("create", "-f", "-", input=binding)

    assert status == 503
    assert "the API server cannot be asked what you may see" in why
    assert "tokenreviews" in why

    def opens() -> bool:
        return asyncio.run(asked(url, **bearer(token)))[0] == 200

    await asyncio.to_thread(wait_until, "the page to open", opens, limit=30)


async def test_behind_a_proxy_the_rights_are_those_of_the_named_account(
    scenario: Scenario, replicas: Replicas, viewers: Viewers, tmp_path: Path
) -> None:
    await a_gang_in(scenario)
    (tmp_path / "secret").write_text("s3cret\n")
    web = {"address": "127.0.0.1:0", "access": "proxy", "proxy_secret_file": str(tmp_path / "secret")}
    (replica,) = await replicas.add(web=web)
    url = await page_of(replica)
    viewers.add("ann")
    viewers.grant("ann", scenario.namespace)
    ann = {"X-Forwarded-User": f"system:serviceaccount:{scenario.namespace}:ann"}
    admin = {"X-Forwarded-User": "somebody", "X-Forwarded-Groups": "system:masters"}
    proxy = {"X-Healthd-Proxy-Secret": "s3cret"}

    assert (await asked(url, **ann, **proxy))[0] == 200
    assert (await asked(url, **{**admin, **proxy}))[0] == 200
    assert (await asked(url, **{"X-Forwarded-User": "somebody"}, **proxy))[0] == 403
    assert (await asked(url, **ann))[0] == 403
    assert (await asked(url, **admin))[0] == 403


async def test_who_loses_the_right_loses_the_stream_within_two_minutes(
    scenario: Scenario, replicas: Replicas, viewers: Viewers
) -> None:
    await a_gang_in(scenario)
    (replica,) = await replicas.add(web=TOKEN)
    url, token = await page_of(replica), viewers.add("ann")
    viewers.grant("ann", scenario.namespace)
    async with a_stream(url, bearer(token)) as stream:
        await stream.next()
        viewers.revoke("ann", scenario.namespace)
        began = time.monotonic()
        await ended(stream)
        took = time.monotonic() - began
    status, why = await asked(url, **bearer(token))

    assert took <= KEPT_FOR.total_seconds() + 5
    assert status == 403
    assert "may list neither nodes nor the recoveries of any namespace" in why


async def ended(stream: Stream) -> None:
    """Return when the server has ended it."""
    while True:
        try:
            await stream.next()
        except EOFError:
            return
