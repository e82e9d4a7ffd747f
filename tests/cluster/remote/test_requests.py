"""Requests: what is sent, and what each answer means."""

from __future__ import annotations

import socket
import ssl
from dataclasses import replace
from datetime import timedelta

import msgspec
import pytest

from healthd.cluster.port import (
    AlreadyExists,
    ClusterError,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    KindAccess,
    NotFound,
    TooManyRequests,
    Unavailable,
    WebhookFailed,
)
from healthd.cluster.remote import Access, Connection, connect
from healthd.core.api import Lease, Node, ObjectMeta, Pod, Recovery
from tests.cluster.fakes import FixedConnection
from tests.cluster.remote.scripted import LIMITS, Answer, Hasty, refuses, says, serving, streams, talking

NODE = {"metadata": {"name": "n", "resourceVersion": "7"}}


@pytest.mark.parametrize(
    ("code", "reason", "words", "meant"),
    [
        (404, "NotFound", 'nodes "n" not found', NotFound),
        (409, "Conflict", "the object has been modified", Conflict),
        (409, "AlreadyExists", "object is being deleted", AlreadyExists),
        (410, "Expired", "too old resource version", Gone),
        (422, "Invalid", "spec.taints: Required value", Invalid),
        (400, "BadRequest", "field label not supported", Invalid),
        (403, "Forbidden", 'User "x" cannot patch nodes', Forbidden),
        (500, "InternalError", 'Internal error occurred: failed calling webhook "a.b.c": no route', WebhookFailed),
        (500, "InternalError", "etcdserver: request timed out", Unavailable),
        (503, "ServiceUnavailable", "shutting down", Unavailable),
        (504, "Timeout", "timed out", Unavailable),
    ],
)
async def test_refusal_keeps_the_servers_words(code: int, reason: str, words: str, meant: type[ClusterError]) -> None:
    async with talking(refuses(code, words, reason)) as (cluster, _):
        with pytest.raises(ClusterError) as caught:
            await cluster.patch(Node, "n", {"spec": {}})

    assert caught.type is meant
    assert words in str(caught.value)


async def test_answer_that_is_no_status_is_quoted() -> None:
    async with talking(says(502, b"<html>Bad Gateway</html>")) as (cluster, server):
        with pytest.raises(Unavailable, match="Bad Gateway") as caught:
            await cluster.get(Node, "n")

    assert f"GET {server.url}/api/v1/nodes/n" in str(caught.value)


@pytest.mark.parametrize(
    "answer",
    [
        refuses(404, "the server could not find the requested resource", "NotFound"),
        says(404, b"404 page not found\n"),
    ],
)
async def test_kind_that_the_server_does_not_know_is_named(answer: Answer) -> None:
    async with talking(answer) as (cluster, _):
        with pytest.raises(NotFound, match=r"/apis/healthd\.dev/v1alpha1/recoveries .*know the kind"):
            await cluster.list(Recovery)


async def test_a_dry_run_of_a_deletion_is_said_in_its_body_for_the_server_takes_no_notice_of_its_query() -> None:
    async with talking(says(200, NODE)) as (cluster, server):
        await cluster.delete(Node, "n", dry_run=True)

    assert msgspec.json.decode(server.asked[0].body)["dryRun"] == ["All"]


async def test_a_dry_run_of_a_creation_is_said_in_its_query() -> None:
    async with talking(says(201, NODE)) as (cluster, server):
        await cluster.create(Node(metadata=ObjectMeta(name="n")), dry_run=True)

    assert server.asked[0].query["dryRun"] == "All"


async def test_patch_names_what_it_has_seen() -> None:
    async with talking(says(200, NODE)) as (cluster, server):
        await cluster.patch(Node, "n", {"spec": {"unschedulable": True}}, resource_version="6", uid="u")

    asked = server.asked[0]
    assert (asked.method, asked.path, asked.query) == ("PATCH", "/api/v1/nodes/n", {"fieldManager": "healthd"})
    assert asked.headers["Content-Type"] == "application/merge-patch+json"
    assert asked.body == b'{"spec":{"unschedulable":true},"metadata":{"resourceVersion":"6","uid":"u"}}'


async def test_credentials_go_with_every_request() -> None:
    async with talking(says(200, NODE)) as (cluster, server):
        await cluster.get(Node, "n")

    assert server.asked[0].headers["Authorization"] == "Bearer secret"


async def test_busy_server_is_asked_again_when_it_said() -> None:
    clock = Hasty()
    busy = refuses(429, "too many requests", Retry_After="3")
    async with talking(busy, says(200, NODE), clock=clock) as (cluster, server):
        node = await cluster.patch(Node, "n", {})

    assert node.metadata.name == "n"
    assert len(server.asked) == 2
    assert timedelta(seconds=3) <= clock.slept[0] <= timedelta(seconds=6)


async def test_server_that_stays_busy_is_not_asked_for_ever() -> None:
    clock = Hasty()
    async with talking(refuses(429, "too many requests", Retry_After="3"), clock=clock) as (cluster, _):
        with pytest.raises(TooManyRequests, match="too many requests"):
            await cluster.get(Node, "n")

    assert sum(clock.slept, timedelta(0)) <= LIMITS.throttled


@pytest.mark.parametrize(
    "asked",
    [
        "0",
        "120",
        "9" * 30,
        "9" * 5000,
        "Tue, 01 Dec 99999999999999999999 00:00:00 GMT",
        "Tue, 01 Dec 2026 00:00:00 GMT",
        "soon",
        "",
    ],
)
async def test_busy_server_is_not_asked_in_a_circle_whatever_it_asks_for(asked: str) -> None:
    clock = Hasty()
    began = clock.now()
    async with talking(refuses(429, "too many requests", Retry_After=asked), clock=clock) as (cluster, server):
        with pytest.raises(TooManyRequests, match="too many requests"):
            await cluster.get(Node, "n")

    assert len(server.asked) >= 2
    assert all(timedelta(seconds=1) <= pause for pause in clock.slept)
    assert clock.now() - began >= LIMITS.throttled / 2


async def test_busy_server_that_asks_for_minutes_is_asked_again_soon_enough_for_a_cordon() -> None:
    clock = Hasty()
    busy = refuses(429, "too many requests", Retry_After="600")
    async with talking(busy, says(200, NODE), clock=clock) as (cluster, server):
        await cluster.patch(Node, "n", {})

    assert len(server.asked) == 2
    assert clock.slept[0] <= LIMITS.throttled


class Renewing:
    """A connection whose first token has expired."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._token = "old"

    async def access(self, *, fresh: bool = False) -> Access:
        if fresh:
            self._token = "new"
        return Access(self._url, "a test", authorization=f"Bearer {self._token}")


async def test_refused_credentials_are_renewed_once() -> None:
    async with serving(refuses(401, "Unauthorized"), says(200, NODE)) as server:
        connection: Connection = Renewing(server.url)
        async with connect(connection, clock=Hasty(), jitter=lambda: 0.5, limits=LIMITS) as cluster:
            await cluster.get(Node, "n")

    assert [asked.headers["Authorization"] for asked in server.asked] == ["Bearer old", "Bearer new"]


async def test_credentials_that_stay_refused_are_unavailable_and_named() -> None:
    async with talking(refuses(401, "Unauthorized")) as (cluster, server):
        with pytest.raises(Unavailable, match=r"\(a test\): 401: Unauthorized"):
            await cluster.get(Node, "n")

    assert len(server.asked) == 2


async def test_server_that_does_not_answer_is_unavailable() -> None:
    impatient = replace(LIMITS, request=timedelta(milliseconds=50))
    async with talking(streams(b"{", then="hang"), limits=impatient) as (cluster, _):
        with pytest.raises(Unavailable, match=r"nothing came for 0\.05 s"):
            await cluster.get(Node, "n")


async def test_answer_that_breaks_off_is_unavailable() -> None:
    async with talking(streams(b"{", then="cut")) as (cluster, _):
        with pytest.raises(Unavailable):
            await cluster.get(Node, "n")


async def test_answer_of_something_else_is_unavailable() -> None:
    async with talking(says(200, b"<html>please log in</html>")) as (cluster, _):
        with pytest.raises(Unavailable, match="please log in"):
            await cluster.get(Node, "n")
        with pytest.raises(Unavailable, match="please log in"):
            await cluster.list(Node)


async def test_port_that_no_one_listens_on_is_unavailable() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        await expect_unavailable(f"http://127.0.0.1:{bound.getsockname()[1]}", "Connect call failed")


async def test_the_reason_of_an_unreachable_server_names_no_object_of_python() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        access = Access(f"https://127.0.0.1:{bound.getsockname()[1]}", "a test", tls=ssl.create_default_context())
        async with connect(FixedConnection(access), clock=Hasty(), jitter=lambda: 0.5, limits=LIMITS) as cluster:
            with pytest.raises(Unavailable, match=r"\(a test\): cannot connect: Connect call failed [^<]*$"):
                await cluster.get(Node, "n")


async def test_name_that_does_not_resolve_is_unavailable() -> None:
    await expect_unavailable("https://api-server.invalid:6443", r"api-server\.invalid:6443")


async def expect_unavailable(url: str, words: str) -> None:
    async with connect(
        FixedConnection(Access(url, "a test")), clock=Hasty(), jitter=lambda: 0.5, limits=LIMITS
    ) as cluster:
        with pytest.raises(Unavailable, match=words):
            await cluster.get(Node, "n")


def page(version: str, *names: str, more: str = "") -> Answer:
    """One page of a list of pods."""
    items = [{"metadata": {"name": name, "namespace": "ns"}} for name in names]
    return says(200, {"metadata": {"resourceVersion": version, "continue": more}, "items": items})


async def test_pages_of_a_list_are_put_together() -> None:
    async with talking(page("5", "a", "b", more="x"), page("5", "c")) as (cluster, server):
        listed = await cluster.list(Pod)

    assert [pod.metadata.name for pod in listed.items] == ["a", "b", "c"]
    assert listed.resource_version == "5"
    assert [asked.query.get("continue") for asked in server.asked] == [None, "x"]


async def test_list_is_ordered_by_namespace_first() -> None:
    keys = [("ns-2", "a"), ("ns", "a"), ("ns", "b")]  # as an API server answers: it sorts `ns-2/a` before `ns/a`
    items = [{"metadata": {"namespace": namespace, "name": name}} for namespace, name in keys]
    async with talking(says(200, {"metadata": {"resourceVersion": "5"}, "items": items})) as (cluster, _):
        listed = await cluster.list(Pod)

    assert [(pod.metadata.namespace, pod.metadata.name) for pod in listed.items] == sorted(keys)


async def test_list_whose_pages_expire_is_begun_again() -> None:
    expired = refuses(410, "the provided continue parameter is too old", "Expired")
    async with talking(page("5", "a", more="x"), expired, page("9", "a", "b")) as (cluster, _):
        listed = await cluster.list(Pod)

    assert [pod.metadata.name for pod in listed.items] == ["a", "b"]
    assert listed.resource_version == "9"


async def test_list_whose_pages_always_expire_is_unavailable() -> None:
    async with talking(refuses(410, "too old", "Expired")) as (cluster, _):
        with pytest.raises(Unavailable, match="too old"):
            await cluster.list(Pod)


async def test_one_unreadable_object_hides_no_other() -> None:
    bad = {"metadata": {"name": "bad"}, "spec": {"taints": "none"}}
    body = {"metadata": {"resourceVersion": "5"}, "items": [NODE, bad]}
    async with talking(says(200, body)) as (cluster, _):
        listed = await cluster.list(Node)

    assert [node.metadata.name for node in listed.items] == ["n"]


async def test_unreadable_object_is_an_error_where_it_is_asked_for() -> None:
    async with talking(says(200, {"metadata": {"name": "bad"}, "spec": {"taints": "none"}})) as (cluster, _):
        with pytest.raises(Invalid, match=r"Node bad: .*spec\.taints"):
            await cluster.get(Node, "bad")


SERVED = says(200, {"kind": "APIResourceList", "resources": [{"name": "pods"}, {"name": "recoveries"}]})
ALLOWED, REFUSED = says(201, {"status": {"allowed": True}}), says(201, {"status": {"allowed": False}})


async def test_verbs_that_the_caller_lacks_are_asked_for_one_by_one() -> None:
    async with talking(SERVED, ALLOWED, REFUSED) as (cluster, server):
        access = await cluster.access_to(Recovery, ["list", "patch"])

    asked = msgspec.json.decode(server.asked[2].body)
    assert access == KindAccess(is_served=True, missing=("patch",))
    assert server.asked[0].path == "/apis/healthd.dev/v1alpha1"
    assert asked["spec"]["resourceAttributes"] == {"verb": "patch", "group": "healthd.dev", "resource": "recoveries"}


async def test_a_verb_of_a_subresource_is_asked_for_as_such() -> None:
    async with talking(SERVED, ALLOWED) as (cluster, server):
        await cluster.access_to(Recovery, ["patch/status"])

    asked = msgspec.json.decode(server.asked[1].body)["spec"]["resourceAttributes"]
    assert asked == {"verb": "patch", "group": "healthd.dev", "resource": "recoveries", "subresource": "status"}


@pytest.mark.parametrize("answer", [refuses(404, "not found", "NotFound"), says(200, {"resources": []})])
async def test_a_kind_that_is_not_served_is_no_question_of_rights(answer: Answer) -> None:
    async with talking(answer) as (cluster, server):
        access = await cluster.access_to(Recovery, ["list"])

    assert access == KindAccess(is_served=False)
    assert len(server.asked) == 1


@pytest.mark.parametrize("body", [b"<html>", {"resources": 5}])
async def test_an_answer_about_rights_that_cannot_be_read_is_none(body: object) -> None:
    async with talking(says(200, body)) as (cluster, _):
        with pytest.raises(Unavailable, match="cannot be read"):
            await cluster.access_to(Recovery, ["list"])


async def test_selectors_are_sent_as_an_api_server_reads_them() -> None:
    async with talking(page("5")) as (cluster, server):
        await cluster.list(
            Pod, labels={"a": "b", "c": None, "d": ""}, fields={"spec.nodeName": "n", "status.phase": "F"}
        )

    query = server.asked[0].query
    assert query["labelSelector"] == "a=b,c,d="
    assert query["fieldSelector"] == "spec.nodeName=n,status.phase=F"


async def test_object_without_a_name_is_not_the_list_of_all() -> None:
    async with talking(says(200, {})) as (cluster, server):
        with pytest.raises(NotFound):
            await cluster.delete(Lease, "", namespace="ns")

    assert server.asked == []


async def test_redirect_is_not_followed_with_our_token() -> None:
    async with talking(says(307, b"", Location="http://127.0.0.1:1/")) as (cluster, server):
        with pytest.raises(Unavailable, match="307"):
            await cluster.get(Node, "n")

    assert len(server.asked) == 1
