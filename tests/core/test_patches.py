"""Merge patches between wire objects."""

from __future__ import annotations

from msgspec import to_builtins
from msgspec.structs import replace

from healthd.cluster.embedded.rules import merged
from healthd.core.api import ChosenCheckpoint, FencedPod, RecoveryStatus
from healthd.core.api.model import Phase
from healthd.core.patches import diff

BEFORE = RecoveryStatus(
    phase=Phase.STOPPING, message="stop", pods=[FencedPod(name="a", uid="1", node="n")], placement={"0": "n", "1": "m"}
)


def test_nothing_changed_is_an_empty_patch() -> None:
    assert diff(BEFORE, BEFORE) == {}


def test_only_what_changed_is_sent() -> None:
    assert diff(BEFORE, replace(BEFORE, message="fence")) == {"message": "fence"}


def test_what_went_back_to_its_default_is_taken_away() -> None:
    assert diff(BEFORE, replace(BEFORE, pods=[], message="")) == {"pods": None, "message": None}


def test_keys_of_a_map_that_are_gone_are_taken_away_one_by_one() -> None:
    assert diff(BEFORE, replace(BEFORE, placement={"0": "n"})) == {"placement": {"1": None}}


def test_lists_are_replaced_whole() -> None:
    pods = [*BEFORE.pods, FencedPod(name="b", uid="2", node="m")]

    assert len(diff(BEFORE, replace(BEFORE, pods=pods))["pods"]) == 2


def test_applying_the_patch_gives_the_new_object() -> None:
    after = RecoveryStatus(phase=Phase.RESERVING, checkpoint=ChosenCheckpoint(path="p", step=3), placement={"2": "x"})

    body = merged(_wire(BEFORE), diff(BEFORE, after))

    assert body == _wire(after)


def _wire(status: RecoveryStatus) -> object:

    return to_builtins(status)
