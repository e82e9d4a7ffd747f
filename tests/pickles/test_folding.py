"""Pickles of very many objects: each is folded into what is wanted of it, so that memory does not grow with them."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthd.pickles.folding import SKIMMED
from healthd.pickles.read import BadPickle, Built, read_pickle

pytestmark = pytest.mark.slow

PAIR, SHAPE = f"{__name__}.Pair", f"{__name__}.Shape"


class Wants:
    """A reader of pairs: of `Pair` it takes each item, of `Shape` it wants nothing."""

    nothing = frozenset({SHAPE})
    short = frozenset({PAIR})

    def __init__(self) -> None:
        self.taken: list[tuple[object, object]] = []

    def complete(self, built: Built) -> None:
        assert isinstance(built.state, dict)
        built.state = built.state["name"]

    def take(self, key: object, value: object) -> bool:
        if not isinstance(key, Built) or key.name != PAIR:
            return False
        self.taken.append((key.state, value))
        return True


class Shape:
    def __init__(self, *sizes: int) -> None:
        self.sizes = sizes


class Pair:
    def __init__(self, name: str, shape: Shape) -> None:
        self.name, self.shape = name, shape


def pairs(count: int) -> bytes:
    """A pickle of so many pairs, whose shapes and names stand in it twice."""
    shapes = [Shape(number, 8) for number in range(count)]
    items = {Pair(f"weight-{number % 10}", shape): [number, number + 1] for number, shape in enumerate(shapes)}
    return pickle.dumps({"shapes": shapes, "items": items, "names": [f"weight-{n}" for n in range(10)]}, protocol=4)


@pytest.mark.parametrize("count", [0, 1, 3, 2500, 20_000])
def test_objects_are_taken_as_they_come_and_what_they_share_is_found_again(count: int) -> None:
    wants = Wants()
    value = read_pickle(pairs(count), {PAIR, SHAPE}, fold=wants)

    assert wants.taken == [(f"weight-{number % 10}", [number, number + 1]) for number in range(count)]
    assert value["items"] == {}
    assert value["names"] == [f"weight-{number}" for number in range(10)]


def test_a_million_objects_that_are_taken_need_no_more_memory_than_a_few() -> None:
    many = pairs(20_000)
    with pytest.raises(BadPickle, match="more memory"):
        read_pickle(many, {PAIR, SHAPE}, memory=3 << 20)

    wants = Wants()
    read_pickle(many, {PAIR, SHAPE}, memory=3 << 20, fold=wants)

    assert len(wants.taken) == 20_000


@given(st.recursive(st.none() | st.integers() | st.text() | st.floats(allow_nan=False), lambda inner: st.lists(inner)))
def test_what_a_large_pickle_refers_to_again_is_there(inner: object) -> None:
    shared = [{"inner": inner, "again": [inner] * 3, "number": number} for number in range(400)]
    value = ["so long that it is skimmed" * (SKIMMED // 20), shared, [shared[number] for number in range(0, 400, 7)]]

    assert read_pickle(pickle.dumps(value, protocol=4), (), fold=Wants()) == value


def test_what_an_earlier_list_is_given_meanwhile_counts() -> None:
    """A list that is referred to again, and grows while objects of which nothing is wanted are made."""
    folded = b"cMODULE\nShape\n)R".replace(b"MODULE", __name__.encode())
    stretch = b"(h\x00" + b"]a" * 2000 + b"0" + folded + b"e"
    data = b"\x80\x02]q\x00]" + stretch * (SKIMMED // len(stretch) + 1) + b"."

    with pytest.raises(BadPickle, match="more memory"):
        read_pickle(data, {SHAPE}, memory=8 << 20, fold=Wants())


def test_a_dictionary_of_which_only_some_items_are_wanted_is_refused() -> None:
    with pytest.raises(BadPickle, match="several kinds"):
        read_pickle(pickle.dumps({Pair("weight", Shape(1)): 1, "weight": 2}), {PAIR, SHAPE}, fold=Wants())
