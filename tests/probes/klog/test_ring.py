"""Reading a ring record by record, and counting what it lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from healthd.probes.klog.ring import CHUNK, Drained, End, Ring

OVERRUN = BrokenPipeError()


def raw(sequence: int, text: str = "boring") -> bytes:
    return f"6,{sequence},{sequence * 10},-;{text}\n".encode()


def no_place(fd: int) -> None:
    """A device without a way back."""


def scripted(
    answers: Iterable[bytes | OSError], *, last_sequence: int = -1, rewind: Callable[[int], None] = no_place
) -> Ring:
    """A ring whose device gives these answers, then has nothing more for now."""
    script = iter(answers)

    def read(fd: int, size: int) -> bytes:
        answer = next(script, BlockingIOError())
        if isinstance(answer, OSError):
            raise answer
        return answer

    return Ring(0, wanted=lambda chunk: b"NVRM" in chunk, read=read, last_sequence=last_sequence, rewind=rewind)


def drain_dry(ring: Ring) -> list[Drained]:
    drains = [ring.drain()]
    while drains[-1].end is End.MORE:
        drains.append(ring.drain())
    return drains


def test_only_what_is_wanted_is_handed_out_but_all_is_counted() -> None:
    ring = scripted([raw(1), raw(2, "NVRM: Xid"), raw(3)])

    drained = ring.drain()

    assert drained.wanted == [raw(2, "NVRM: Xid")]
    assert (drained.count, drained.lost, drained.end) == (3, 0, End.DRY)
    assert ring.last_sequence == 3


def test_a_long_log_comes_in_chunks() -> None:
    ring = scripted(raw(number) for number in range(CHUNK + 5))

    assert [(drained.count, drained.end) for drained in drain_dry(ring)] == [(CHUNK, End.MORE), (5, End.DRY)]


def test_an_overrun_is_counted_exactly_and_reading_goes_on_at_once() -> None:
    ring = scripted([raw(10), OVERRUN, raw(200, "NVRM: Xid"), raw(201)])

    drained = ring.drain()

    assert drained.wanted == [raw(200, "NVRM: Xid")]
    assert drained.lost == 189
    assert drained.count == 3


def test_several_overruns_add_up() -> None:
    ring = scripted([raw(1), OVERRUN, OVERRUN, raw(5), OVERRUN, raw(9)])

    assert ring.drain().lost == 6


def test_an_overrun_between_two_drains_is_counted() -> None:
    ring = scripted([raw(1), BlockingIOError(), OVERRUN, raw(4)])
    ring.drain()

    assert ring.drain().lost == 2


def test_a_chunk_of_nothing_but_overruns_is_not_the_end() -> None:
    ring = scripted([raw(1), BlockingIOError(), *[OVERRUN] * CHUNK, raw(2)])
    ring.drain()

    assert [(drained.count, drained.end) for drained in drain_dry(ring)] == [(0, End.MORE), (1, End.DRY)]


def test_a_hole_that_no_one_announced_is_counted() -> None:
    ring = scripted([raw(1), raw(2), raw(7), raw(8)])

    assert ring.drain().lost == 4


def test_records_up_to_the_cursor_are_not_read_twice() -> None:
    ring = scripted([raw(number, "NVRM: Xid") for number in range(4)], last_sequence=2)

    drained = ring.drain()

    assert drained.wanted == [raw(3, "NVRM: Xid")]
    assert (drained.count, drained.lost) == (1, 0)


def test_records_lost_since_the_cursor_are_counted() -> None:
    ring = scripted([raw(50)], last_sequence=20)

    assert ring.drain().lost == 29


def test_without_a_cursor_nothing_was_lost_before_the_first_record() -> None:
    assert scripted([raw(5000)]).drain().lost == 0


def test_a_ring_that_holds_only_what_is_known_changes_nothing() -> None:
    ring = scripted([raw(8), raw(9)], last_sequence=9)

    assert ring.drain().count == 0
    assert ring.last_sequence == 9


def test_a_cursor_that_is_ahead_of_the_log_was_of_another_one_and_is_forgotten() -> None:
    log = [raw(number) for number in range(CHUNK)]
    answers: list[bytes | OSError] = [*log, BlockingIOError(), *log]
    rewound: list[int] = []
    ring = scripted(answers, last_sequence=5_678_901, rewind=rewound.append)
    drains = drain_dry(ring)

    assert rewound == [0]
    assert sum(drained.count for drained in drains) == CHUNK
    assert (ring.last_sequence, drains[-1].lost) == (CHUNK - 1, 0)


def test_garbage_is_skipped() -> None:
    ring = scripted([raw(1), b"garbage\n", raw(2)])

    drained = ring.drain()

    assert (drained.count, drained.lost) == (2, 0)


def test_the_end_of_a_pipe_is_distinguished_from_a_pause() -> None:
    ring = scripted([raw(1), *[b""] * CHUNK])

    drained = ring.drain()

    assert (drained.count, drained.end) == (1, End.CLOSED)


def test_a_broken_device_is_an_error() -> None:
    with pytest.raises(OSError, match="gone"):
        scripted([OSError(19, "gone")]).drain()
