"""A real API server over connections that are cut, frozen and refused, and an API server that goes away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from healthd.clock import SystemClock
from healthd.cluster.informer import Informer, Watched
from healthd.cluster.leader import Candidacy, Deposed, lead
from healthd.cluster.port import Forbidden, Unavailable
from healthd.cluster.remote import ClientLimits, RemoteCluster, connect, in_cluster
from healthd.core.api import Lease, Node
from tests.builders import a_lease
from tests.cluster.remote.conftest import Road, remote
from tests.lab.control_plane import STRANGER, ControlPlane

pytestmark = pytest.mark.lab

_LIMIT_S = 90
"""Ends a test that would wait for ever. After an outage an informer waits up to half a minute before it asks again."""


class Follower:
    """Follows a watch of the leases of one namespace in a task of its own."""

    def __init__(self, cluster: RemoteCluster, namespace: str, since: str) -> None:
        self.names: list[str] = []
        self._grown = asyncio.Event()
        self.task = asyncio.create_task(self._follow(cluster, namespace, since))

    async def _follow(self, cluster: RemoteCluster, namespace: str, since: str) -> None:
        events: Any = cluster.watch(Lease, since=since, namespace=namespace)
        async with aclosing(events):
            async for event in events:
                self.names += [event.obj.metadata.name] if event.obj else [""]
                self._grown.set()

    async def until(self, *names: str) -> None:
        """Return when exactly these were seen, in this order; fail when others were. Bookmarks do not count."""
        async with asyncio.timeout(_LIMIT_S):
            while [name for name in self.names if name][: len(names)] != list(names):
                self._grown.clear()
                waiting = asyncio.create_task(self._grown.wait())
                await asyncio.wait((waiting, self.task), return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
                if self.task.done():
                    await self.task
        assert [name for name in self.names if name] == list(names)

    async def until_connected(self, times: int) -> None:
        """Return when the watch was accepted so often."""
        async with asyncio.timeout(_LIMIT_S):
            while self.names.count("") < times:
                self._grown.clear()
                await self._grown.wait()


@asynccontextmanager
async def following(cluster: RemoteCluster, namespace: str) -> AsyncIterator[Follower]:
    since = (await cluster.list(Lease, namespace=namespace)).resource_version
    follower = Follower(cluster, namespace, since)
    try:
        await follower.until_connected(1)
        yield follower
    finally:
        follower.task.cancel()
        await asyncio.gather(follower.task, return_exceptions=True)


async def test_watch_loses_nothing_when_its_connection_is_reset(
    cluster: RemoteCluster, road: Road, namespace: str
) -> None:
    async with road.connect() as far, following(far, namespace) as follower:
        for name in ("a", "b", "c"):
            await cluster.create(a_lease(name, namespace=namespace))
            await road.proxy.reset()

        await follower.until("a", "b", "c")


async def test_watch_that_froze_goes_on_over_another_connection(
    cluster: RemoteCluster, road: Road, namespace: str
) -> None:
    async with road.connect(stall_after=timedelta(seconds=0.3)) as far, following(far, namespace) as follower:
        road.proxy.freeze()
        await cluster.create(a_lease("a", namespace=namespace))

        await follower.until("a")


async def test_watch_goes_on_after_an_outage(cluster: RemoteCluster, road: Road, namespace: str) -> None:
    async with road.connect() as far, following(far, namespace) as follower:
        await road.proxy.refuse()
        await cluster.create(a_lease("a", namespace=namespace))
        with pytest.raises(Unavailable):
            await far.get(Lease, "a", namespace)
        await road.proxy.accept()

        await follower.until("a")
        assert (await far.get(Lease, "a", namespace)).metadata.name == "a"


async def test_write_into_a_frozen_connection_is_unavailable_and_the_next_one_works(
    cluster: RemoteCluster, road: Road, namespace: str
) -> None:
    async with road.connect(request=timedelta(seconds=0.5)) as far:
        await far.create(a_lease("a", namespace=namespace))
        road.proxy.freeze()
        with pytest.raises(Unavailable):
            await far.patch(Lease, "a", {"spec": {"holderIdentity": "x"}}, namespace=namespace)

        assert (await far.patch(Lease, "a", {"spec": {"holderIdentity": "y"}}, namespace=namespace)).spec
        assert (await cluster.get(Lease, "a", namespace)).spec.holder_identity == "y"


async def test_informer_is_right_again_after_the_api_server_was_away(
    cluster: RemoteCluster, control_plane: ControlPlane, namespace: str
) -> None:
    informer = Informer(cluster, SystemClock(), [Watched(kind=Lease, namespace=namespace)])
    grown, reported = asyncio.Event(), list[str]()
    informer.listen(lambda _: grown.set())
    running = asyncio.create_task(informer.run())
    await informer.until_synced()
    informer.listen(lambda change: reported.append(change.last.metadata.uid) if change.last else None)
    gone = await cluster.create(a_lease("a", namespace=namespace))
    await asyncio.to_thread(control_plane.stop_api_server)
    with pytest.raises(Unavailable):
        await cluster.get(Lease, "a", namespace)
    await asyncio.to_thread(control_plane.start_api_server)
    await cluster.delete(Lease, "a", namespace=namespace)
    await cluster.create(a_lease("b", namespace=namespace))

    async with asyncio.timeout(_LIMIT_S):
        while [lease.metadata.name for lease in (await informer.list(Lease)).items] != ["b"]:
            grown.clear()
            await grown.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

    assert gone.metadata.uid in reported


async def test_standby_leads_when_the_leader_ends(cluster: RemoteCluster, namespace: str) -> None:
    story = Story()
    one, two = asyncio.Event(), asyncio.Event()
    first = asyncio.create_task(leading(cluster, namespace, "one", story, one))
    await story.until("one begins")
    second = asyncio.create_task(leading(cluster, namespace, "two", story, two))
    one.set()
    await story.until("two begins")
    two.set()
    await asyncio.gather(first, second)

    assert story.reported == ["one begins", "one ends", "two begins", "two ends"]
    assert (await cluster.get(Lease, "leader", namespace)).spec.holder_identity == ""


@pytest.mark.slow
async def test_leader_behind_a_frozen_connection_ends_before_another_begins(
    cluster: RemoteCluster, road: Road, namespace: str
) -> None:
    story = Story()
    async with road.connect() as far:
        cut_off = asyncio.create_task(leading(far, namespace, "one", story, asyncio.Event()))
        await story.until("one begins")
        road.proxy.hold()
        finished = asyncio.Event()
        standby = asyncio.create_task(leading(cluster, namespace, "two", story, finished))
        await story.until("two begins")
        finished.set()
        await standby
        with pytest.raises(Deposed):
            await cut_off

    assert story.reported == ["one begins", "one ends", "two begins", "two ends"]


async def leading(cluster: RemoteCluster, namespace: str, name: str, story: Story, finished: asyncio.Event) -> None:
    """A candidate that tells when its work begins and ends."""

    async def work() -> None:
        story.tell(f"{name} begins")
        try:
            await finished.wait()
        finally:
            story.tell(f"{name} ends")

    seconds = {"lasts": 3.0, "renew_within": 1.5, "renew_every": 0.2}
    limits = {key: timedelta(seconds=value) for key, value in seconds.items()}
    await lead(cluster, SystemClock(), Candidacy(identity=name, name="leader", namespace=namespace, **limits), work)


class Story:
    """What happened, in order."""

    def __init__(self) -> None:
        self.reported: list[str] = []
        self._grown = asyncio.Event()

    def tell(self, what: str) -> None:
        self.reported.append(what)
        self._grown.set()

    async def until(self, what: str) -> None:
        """Return when it was seen."""
        async with asyncio.timeout(_LIMIT_S):
            while what not in self.reported:
                self._grown.clear()
                await self._grown.wait()


async def test_expired_token_is_read_again(cluster: RemoteCluster, control_plane: ControlPlane, tmp_path: Path) -> None:
    files = service_account(tmp_path, control_plane, "expired")
    environ = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(control_plane.port)}
    clock = SystemClock()
    async with connect(in_cluster(clock, environ=environ, files=files), clock=clock, jitter=lambda: 0.5) as far:
        with pytest.raises(Unavailable, match="401"):
            await far.list(Node)
        service_account(tmp_path, control_plane, control_plane.token)

        assert await far.list(Node)


def service_account(files: Path, control_plane: ControlPlane, token: str) -> Path:
    """What a kubelet puts into a pod."""
    (files / "token").write_text(token)
    (files / "ca.crt").write_bytes(control_plane.authority.read_bytes())
    return files


async def test_a_stranger_learns_what_is_forbidden(control_plane: ControlPlane, tmp_path: Path, namespace: str) -> None:
    kubeconfig = control_plane.write_kubeconfig(tmp_path / "config", control_plane.identity(STRANGER))
    async with remote(kubeconfig) as stranger:
        with pytest.raises(Forbidden, match='"stranger" cannot list resource "nodes"'):
            await stranger.list(Node)
        with pytest.raises(Forbidden, match='"stranger" cannot watch resource "leases"'):
            await anext(stranger.watch(Lease, since="1", namespace=namespace))


async def test_list_is_whole_and_in_order_whatever_its_pages(
    cluster: RemoteCluster, control_plane: ControlPlane, tmp_path: Path, namespace: str
) -> None:
    for number in range(7):
        await cluster.create(a_lease(f"slot-{number}", namespace=namespace))
    async with remote(control_plane.kubeconfig, ClientLimits(page=2)) as paging:
        listed = await paging.list(Lease, namespace=namespace)

    assert listed.items == (await cluster.list(Lease, namespace=namespace)).items
