"""Pickles read as data: plain values come out, nothing is built, and no few bytes cost much."""

from __future__ import annotations

import collections
import pickle
from typing import Any

import pytest

from healthd.pickles.read import EVERYTHING, BadPickle, Built, read_pickle


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        [1, 255, 256, 65536, -1, 2**40, -(2**40), 2**3000],
        {"a": [1.5, "é"], ("x", 1): (), 3: {"b": 4}},
        [[]] * 3,
        "long" * 100,
        list(range(3000)),
        (1, 2, 3, 4),
    ],
    ids=lambda value: str(value)[:20],
)
def test_plain_values_come_out_as_they_went_in(value: Any, protocol: int) -> None:
    assert read_pickle(pickle.dumps(value, protocol), ()) == value


@pytest.mark.parametrize("value", [b"raw", b"long" * 100, {4, 5}, frozenset({"a", "b"})])
def test_bytes_and_sets_come_out_as_they_went_in(value: Any) -> None:
    assert read_pickle(pickle.dumps(value, 4), ()) == value


@pytest.mark.parametrize(
    "numbers",
    [(0, 1), (1, 2), (5, 3), (0, 0), (1, 0)],
    ids=["from zero", "from one, as in Python 2", "in no order", "one twice", "the second before the first"],
)
def test_values_are_found_again_under_any_number(numbers: tuple[int, int]) -> None:
    """One value is kept under the first number, another under the second, and both are asked for again."""
    first, second = (bytes([number]) for number in numbers)
    program = b"\x80\x02(K\x07q" + first + b"K\x08q" + second + b"h" + first + b"h" + second + b"t."
    expected = pickle.loads(program)

    assert read_pickle(program, ()) == expected


def test_numbered_values_follow_those_under_far_numbers() -> None:
    program = b"\x80\x04(K\x07q\x09K\x08\x94h\x09h\x01t."
    expected = pickle.loads(program)

    assert read_pickle(program, ()) == expected


def test_ordered_dictionaries_are_dictionaries() -> None:
    value = collections.OrderedDict(a=1, b=2)

    assert read_pickle(pickle.dumps(value), {"collections.OrderedDict"}) == {"a": 1, "b": 2}


def test_an_allowed_class_is_noted_and_not_built() -> None:
    value = read_pickle(b"\x80\x02cshop\nOrder\nK\x07\x85R}X\x01\x00\x00\x00aK\x01sb.", {"shop.Order"})

    assert isinstance(value, Built)
    assert (value.name, value.args, value.state) == ("shop.Order", (7,), {"a": 1})


def test_any_other_class_is_refused_by_name() -> None:
    with pytest.raises(BadPickle, match=r"asks for 'builtins\.eval'"):
        read_pickle(b"\x80\x02cbuiltins\neval\nX\x01\x00\x00\x001\x85R.", {"shop.Order"})


def test_with_everything_let_through_still_nothing_is_built() -> None:
    value = read_pickle(b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00exit\x85R.", EVERYTHING)

    assert isinstance(value, Built)
    assert (value.name, value.args) == ("os.system", ("exit",))


def test_what_objects_of_container_classes_hold_is_skipped() -> None:
    value = read_pickle(pickle.dumps({"queue": collections.deque([1, 2]), "step": 10}), EVERYTHING)

    assert isinstance(value["queue"], Built)
    assert value["step"] == 10


def test_a_pickle_of_too_many_instructions_is_given_up() -> None:
    with pytest.raises(BadPickle, match="more than 5 instructions"):
        read_pickle(pickle.dumps(list(range(100))), (), most=5)


@pytest.mark.parametrize(
    "hostile",
    [
        pytest.param(b"\x80\x04Nr\xff\xff\xff\xff.", id="memo at four billion"),
        pytest.param(b"\x80\x04\x8e" + b"\xff" * 7 + b"\x7fx.", id="bytes of an absurd length"),
        pytest.param(b"\x80\x04)" + b"\x85" * 300_000 + b"}\x94h\x00K\x01s.", id="nothing deep as a key"),
        pytest.param(b"\x80\x04})" + b"\x85" * 300_000 + b"K\x01s.", id="key nested a million deep"),
        pytest.param(b"\x80\x04)" + b"\x85" * 300_000 + b"\x8c\x01x\x93.", id="module nested a million deep"),
        pytest.param(b"\x80\x04}()" + b"\x85" * 300_000 + b"\x90.", id="set items into a dictionary"),
        pytest.param(b"\x80\x04P1\n.", id="persistent id"),
        pytest.param(b"\x80\x04NQ.", id="binary persistent id"),
        pytest.param(b"\x80\x04\x82\x01.", id="extension registry"),
        pytest.param(b"(i" + b"os\nsystem\n.", id="old instance"),
        pytest.param(b"\x80\x04K\x01}b.", id="state of a number"),
        pytest.param(b"", id="empty"),
        pytest.param(b".", id="stop with nothing"),
        pytest.param(b"\x80\x04K\x01K\x02R.", id="call of a number"),
        pytest.param(b"\x80\x04]K\x01e.", id="no mark"),
        pytest.param(b"\x80\x04(K\x01d.", id="key without value"),
        pytest.param(b"\x80\x04h\x07.", id="unknown memo"),
        pytest.param(b"\x80\x04\x8c\x02\xff\xfe.", id="text that is none"),
    ],
)
def test_hostile_bytes_end_in_a_refusal_or_plain_data(hostile: bytes) -> None:
    try:
        value = read_pickle(hostile, {"shop.Order"})
    except BadPickle:
        return

    assert value is None or isinstance(value, dict)
