"""Viewers who share a channel: what each gets, and what one that does not keep up loses."""

from __future__ import annotations

import zlib

from healthd.controller.web.channel import BEHIND_BYTES, Channel
from healthd.controller.web.frames import GZIP_HEAD, Frame
from healthd.core.recovery.terms import KUBERNETES
from healthd.core.report.listing.fleet import summary
from healthd.core.report.page.nodes import NodeCell, NodeState, SpareState
from healthd.core.report.page.state import EVERYTHING, PageState, Surroundings
from tests.fakes import START

AROUND = Surroundings(name="lab", terms=KUBERNETES, fleet=summary({}, {}, []), budget=2)
SOON = 0.01


def state(reason: str = "", nodes: int = 1) -> PageState:
    cell = NodeCell("rack-1", NodeState.DEGRADED, SpareState.NO, reason)
    return PageState(nodes={f"gpu-{number}": cell for number in range(nodes)})


def a_channel(first: PageState) -> Channel:
    channel = Channel(EVERYTHING)
    channel.publish(first, AROUND, START)
    return channel


def events(frames: list[Frame]) -> list[bytes]:
    return [frame.plain.split(b"\n")[0] for frame in frames]


async def test_frames_that_were_compressed_apart_are_one_gzip_stream() -> None:
    frames = [Frame("state", {"a": "x" * 1000}), Frame("change", {"b": 1}), Frame("change", {"c": 2})]
    wire = GZIP_HEAD + b"".join(frame.packed for frame in [*frames, frames[0]])

    assert zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(wire) == b"".join(
        frame.plain for frame in [*frames, frames[0]]
    )


async def test_viewers_share_one_encoding() -> None:
    channel = a_channel(state())
    one, other = channel.join(), channel.join()
    (first,), (second,) = await one.next(SOON), await other.next(SOON)

    assert first is second


async def test_a_viewer_that_does_not_keep_up_skips_to_the_newest_state() -> None:
    channel = a_channel(state(nodes=100))
    viewer, quick = channel.join(), channel.join()
    await viewer.next(SOON)
    for number in range(200):
        channel.publish(state(f"{number} {'x' * 150}", nodes=100), AROUND, START)
        await quick.next(SOON)
    waiting = await viewer.next(SOON)

    assert sum(len(frame.plain) for frame in waiting) < BEHIND_BYTES * 2
    assert events(waiting)[0] == b"event: state"
    assert b"199 xxx" in waiting[-1].plain


async def test_a_viewer_gets_a_sign_of_life_while_nothing_happens() -> None:
    viewer = a_channel(state()).join()
    await viewer.next(SOON)

    assert events(await viewer.next(SOON)) == [b"event: alive"]


async def test_nothing_is_sent_for_a_state_that_is_the_same() -> None:
    channel = a_channel(state())
    viewer = channel.join()
    await viewer.next(SOON)
    channel.publish(state(), AROUND, START)

    assert events(await viewer.next(SOON)) == [b"event: alive"]
