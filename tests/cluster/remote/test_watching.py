"""The watch that has no end, over connections that do."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from healthd.cluster.port import Event, EventType, Forbidden, Gone
from healthd.cluster.remote import RemoteCluster
from healthd.core.api import Node
from tests.cluster.remote.scripted import LIMITS, Answer, Hasty, Scripted, line, refuses, streams, talking

HANG = streams(then="hang")


def node(name: str, version: str) -> bytes:
    return line("ADDED", {"metadata": {"name": name, "resourceVersion": version}})


def bookmark(version: str) -> bytes:
    return line("BOOKMARK", {"kind": "Node", "metadata": {"resourceVersion": version}})


async def changes(cluster: RemoteCluster, count: int) -> list[str]:
    """The names in the next *count* changes after version 1. The limit ends a test that would wait for ever."""
    seen: list[str] = []
    events: Any = cluster.watch(Node, since="1")
    async with asyncio.timeout(10), aclosing(events):
        while len(seen) < count:
            event = await anext(events)
            seen += [event.obj.metadata.name] if event.obj else []
    return seen


def resumed_from(server: Scripted) -> list[str]:
    return [asked.query["resourceVersion"] for asked in server.asked]


@pytest.mark.parametrize("how", ["end", "cut"])
async def test_watch_goes_on_from_the_last_version_when_its_connection_ends(how: str) -> None:
    async with talking(streams(node("a", "5"), then=how), streams(node("b", "6"), then="hang")) as (cluster, server):
        assert await changes(cluster, 2) == ["a", "b"]
        assert resumed_from(server) == ["1", "5"]


async def test_watch_goes_on_from_a_bookmark() -> None:
    async with talking(streams(bookmark("9")), streams(node("b", "10"), then="hang")) as (cluster, server):
        assert await changes(cluster, 1) == ["b"]
        assert resumed_from(server) == ["1", "9"]


async def test_silent_watch_is_made_again() -> None:
    impatient = replace(LIMITS, stall_after=timedelta(milliseconds=50))
    silent, works = streams(node("a", "5"), then="hang"), streams(node("b", "6"), then="hang")
    async with talking(silent, works, limits=impatient) as (cluster, server):
        assert await changes(cluster, 2) == ["a", "b"]
        assert resumed_from(server) == ["1", "5"]


async def test_event_may_come_in_pieces() -> None:
    whole = node("a", "5") + node("b", "6")
    async with talking(streams(whole[:20], whole[20:-30], whole[-30:], then="hang")) as (cluster, _):
        assert await changes(cluster, 2) == ["a", "b"]


async def test_half_an_event_is_reported_once_whole() -> None:
    async with talking(streams(node("a", "5")[:-20], then="end"), streams(node("a", "5"), then="hang")) as (cluster, _):
        assert await changes(cluster, 1) == ["a"]


async def test_event_longer_than_any_buffer_is_reported() -> None:
    long = line("ADDED", {"metadata": {"name": "a", "resourceVersion": "5", "annotations": {"x": "y" * 1_000_000}}})
    async with talking(streams(long, then="hang")) as (cluster, _):
        assert await changes(cluster, 1) == ["a"]


async def test_forgotten_history_is_gone() -> None:
    error = line("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"})
    async with talking(streams(error)) as (cluster, _):
        with pytest.raises(Gone, match="too old"):
            await changes(cluster, 1)


async def test_history_that_is_refused_at_once_is_gone() -> None:
    async with talking(refuses(410, "too old resource version", "Expired")) as (cluster, _):
        with pytest.raises(Gone, match="too old"):
            await changes(cluster, 1)


async def test_error_of_the_server_in_the_stream_is_a_pause() -> None:
    error = line("ERROR", {"kind": "Status", "code": 500, "message": "etcd is not well"})
    async with talking(streams(error), streams(node("a", "5"), then="hang")) as (cluster, _):
        assert await changes(cluster, 1) == ["a"]


async def test_words_that_are_no_event_are_a_pause() -> None:
    async with talking(streams(b"<html>\n"), streams(node("a", "5"), then="hang")) as (cluster, _):
        assert await changes(cluster, 1) == ["a"]


async def test_forbidden_watch_is_an_error() -> None:
    async with talking(refuses(403, 'User "x" cannot watch nodes')) as (cluster, _):
        with pytest.raises(Forbidden, match="cannot watch"):
            await changes(cluster, 1)


@pytest.mark.parametrize(
    "trouble", [refuses(503, "starting"), refuses(429, "busy", Retry_After="1"), refuses(401, "who?")]
)
async def test_server_in_trouble_is_asked_again(trouble: Answer) -> None:
    async with talking(trouble, trouble, streams(node("a", "5"), then="hang")) as (cluster, _):
        assert await changes(cluster, 1) == ["a"]


async def test_server_in_trouble_is_asked_less_and_less_often() -> None:
    clock, trouble = Hasty(), refuses(503, "starting")
    async with talking(*[trouble] * 12, streams(node("a", "5"), then="hang"), clock=clock) as (cluster, _):
        await changes(cluster, 1)

    assert clock.slept[0] == timedelta(0)
    assert clock.slept[1] <= LIMITS.first_retry
    assert clock.slept[-1] >= LIMITS.last_retry / 2
    assert max(clock.slept) <= LIMITS.last_retry


async def test_watch_that_had_events_is_made_again_at_once() -> None:
    clock, trouble = Hasty(), refuses(503, "starting")
    works_again = streams(node("a", "5")), streams(node("b", "6"), then="hang")
    async with talking(trouble, trouble, trouble, *works_again, clock=clock) as (cluster, _):
        await changes(cluster, 2)

    assert [delay == timedelta(0) for delay in clock.slept] == [True, False, False, True]


async def test_accepted_watch_is_reported_as_a_bookmark() -> None:
    async with talking(HANG) as (cluster, _):
        event = await first(cluster.watch(Node, since="7"))

    assert event == Event(EventType.BOOKMARK, None, "7")


async def first(events: Any) -> Event[Node]:
    try:
        event: Event[Node] = await anext(events)
        return event
    finally:
        await events.aclose()


async def test_unreadable_object_moves_the_watch_on() -> None:
    bad = line("ADDED", {"metadata": {"name": "bad", "resourceVersion": "5"}, "spec": {"taints": "none"}})
    async with talking(streams(bad), streams(node("b", "6"), then="hang")) as (cluster, server):
        assert await changes(cluster, 1) == ["b"]
        assert resumed_from(server) == ["1", "5"]


async def test_watches_do_not_all_end_at_once() -> None:
    async with talking(streams(node("a", "5")), streams(node("b", "6")), streams(node("c", "7"))) as (cluster, server):
        await changes(cluster, 3)

    asked = [int(asked.query["timeoutSeconds"]) for asked in server.asked]
    assert len(set(asked)) > 1
    assert all(300 <= seconds <= 600 for seconds in asked)


async def test_watch_asks_for_bookmarks_and_its_selection() -> None:
    async with talking(HANG) as (cluster, server):
        await first(cluster.watch(Node, since="7", fields={"metadata.name": "n"}, labels={"gang": None}))

    query = server.asked[0].query
    assert (query["watch"], query["allowWatchBookmarks"]) == ("true", "true")
    assert (query["fieldSelector"], query["labelSelector"]) == ("metadata.name=n", "gang")
