"""The hands that healthd ships, and those that an operator describes. Pure; a table of data."""

from __future__ import annotations

import pkgutil
from collections.abc import Sequence
from functools import cache

import msgspec
import yaml

from healthd.core.remediation.hands.description import HandDescription, errors_in


class BadHand(ValueError):
    """A description that cannot be used. The message has one line for each error."""


def read_hands(content: str | bytes) -> tuple[HandDescription, ...]:
    """The hands in a YAML list, checked. Raises BadHand."""
    try:
        hands = msgspec.convert(yaml.safe_load(content), type=tuple[HandDescription, ...])
    except (yaml.YAMLError, msgspec.ValidationError, RecursionError) as error:
        raise BadHand(f"this is no list of hands: {error}") from None
    errors = [error for hand in hands for error in errors_in(hand)]
    names = [hand.name for hand in hands]
    errors += [
        f"hand {name!r}: there are two with this name" for name in sorted({n for n in names if names.count(n) > 1})
    ]
    if errors:
        raise BadHand("\n".join(errors))
    return hands


def check_names(names: Sequence[str], at_once: int, own: Sequence[HandDescription] | None = ()) -> None:
    """
    Refuse names that no hand has, and limits without a hand. *own*: the hands of the site's file; None: it has one that
    was not read. Raises ValueError.
    """
    if at_once and not names:
        raise ValueError("at_once is above 0, and hands is empty: name what may reset, reboot or replace a node")
    if own is None:
        return
    known = sorted({hand.name for hand in (*own, *shipped_hands())})
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"hands: there is no hand {unknown[0]!r}; there are {', '.join(known)}")


def chosen_hands(names: Sequence[str], own: Sequence[HandDescription] = ()) -> tuple[HandDescription, ...]:
    """The hands with these *names*, in this order. One of *own* takes the place of a shipped one. Raises KeyError."""
    known = {hand.name: hand for hand in (*shipped_hands(), *own)}
    return tuple(known[name] for name in names)


@cache
def shipped_hands() -> tuple[HandDescription, ...]:
    """All that healthd knows, by `hands.yaml`."""
    content = pkgutil.get_data(__package__, "hands.yaml")
    assert content is not None
    return read_hands(content)
