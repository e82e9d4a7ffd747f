"""What others wrote becomes a bounded value, or a reason why not."""

from __future__ import annotations

import base64
import gzip
import zlib
from datetime import UTC, datetime

import pytest

from healthd.core.recovery.members import attempt_of, index_of
from healthd.core.recovery.progress import Progress
from healthd.core.untrusted import (
    InvalidText,
    inflated,
    moment_or_none,
    read_json,
    read_moment,
    read_number,
    read_text,
    shown,
)
from tests.builders import a_pod


@pytest.mark.parametrize(
    "text", ["9" * 5000, "2147483648", "\u0663", "\u00b2", "-1", "1e3", "0x10", "3\n", " 3", "", "1_000"]
)
def test_a_number_is_a_few_ascii_digits(text: str) -> None:
    with pytest.raises(InvalidText):
        read_number(text)


def test_a_number_may_have_leading_zeros() -> None:
    assert read_number("0042") == 42


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a":' * 50_000, "NaN", "1" * 300_000, "\ud800", '{"step":' + "9" * 400 + "}"]
)
def test_json_has_its_shape_and_its_bounds(text: str) -> None:
    with pytest.raises(InvalidText):
        read_json(text, Progress)


@pytest.mark.parametrize("text", ['{"at":"2026-01-01T00:00:00"}', '{"intervals":[-1]}', '{"intervals":[1e300]}'])
def test_progress_that_could_not_be_computed_with_is_refused(text: str) -> None:
    with pytest.raises(InvalidText):
        read_json(text, Progress)


@pytest.mark.slow
@pytest.mark.parametrize("pack", [zlib.compress, gzip.compress])
def test_a_bomb_is_not_unpacked(pack: object) -> None:
    assert callable(pack)
    bomb = base64.b64encode(pack(bytes(50_000_000))).decode()

    with pytest.raises(InvalidText, match="more than 1,000 bytes"):
        inflated(bomb, 1000)


@pytest.mark.parametrize(
    "text", ["%%%", "AAAA", base64.b64encode(zlib.compress(b"whole" * 99)[:-5]).decode(), "\u00e9"]
)
def test_what_is_no_pack_or_half_of_one_is_refused(text: str) -> None:
    with pytest.raises(InvalidText):
        inflated(text, 1000)


def test_a_name_holds_no_escape_sequence() -> None:
    with pytest.raises(InvalidText, match="cannot be printed"):
        read_text("\x1b]0;root\x07", 100)


def test_a_reason_repeats_little_of_a_text_and_nothing_that_a_terminal_obeys() -> None:
    said = shown("\x1b[2J" + "x" * 300_000)

    assert len(said) < 120
    assert said.isprintable()


def test_marks_of_a_pod_that_cannot_be_read_count_as_none() -> None:
    pod = a_pod(annotations={"healthd.dev/attempt": "9" * 5000, "batch.kubernetes.io/job-completion-index": "7" * 5000})

    assert (attempt_of(pod), index_of(pod)) == (0, "")


@pytest.mark.parametrize("text", ["2026-01-01T12:00:00Z", "2026-01-01t12:00:00z", "2026-01-01 13:00+01:00"])
def test_a_time_with_its_zone_is_read(text: str) -> None:
    assert read_moment(text) == datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    "text", ["", "yes", "12:00Z", "2026-01-01", "2026-01-01T12:00:00", "2026-13-01T00:00Z", "9" * 5000]
)
def test_a_time_without_its_zone_is_none(text: str) -> None:
    assert moment_or_none(text) is None
    with pytest.raises(InvalidText, match="is no time with its zone"):
        read_moment(text)
