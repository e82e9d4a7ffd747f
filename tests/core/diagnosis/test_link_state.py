"""What a port's state means, by what was seen before and by its peers."""

from __future__ import annotations

import pytest

from healthd.core.diagnosis.link_state import LinkState, PortSeen, judge_links

UP = ("ACTIVE", "LinkUp")
POLLING = ("DOWN", "Polling")


def a_port(words: tuple[str, str] = UP, **changes: object) -> PortSeen:
    """A port on a rail that was up once."""
    usual = {"is_off": False, "kind": "hdr", "was_up": True, "on_rail": True}
    given = {"state": words[0], "phys_state": words[1], **usual}
    return PortSeen(**{**given, **changes})  # type: ignore[arg-type]  # one builder for all fields


def judged(port: PortSeen, *others: PortSeen) -> LinkState:
    """What is said of the first."""
    return judge_links({str(at): one for at, one in enumerate([port, *others])})["0"]


@pytest.mark.parametrize(
    ("port", "link"),
    [
        (a_port(), LinkState.UP),
        (a_port(("ACTIVE_DEFER", "LinkUp")), LinkState.UP),
        (a_port(POLLING), LinkState.DOWN),
        (a_port(("DOWN", "Sleep")), LinkState.DOWN),
        (a_port(POLLING, on_rail=False), LinkState.DOWN_OFF_RAIL),
        (a_port(POLLING, was_up=False), LinkState.UNUSED),
        (a_port(("DOWN", "Disabled")), LinkState.DOWN),
        (a_port(("DOWN", "Disabled"), is_off=True), LinkState.DISABLED),
        (a_port(("DOWN", "Disabled"), is_off=True, was_up=False), LinkState.UNUSED),
        (a_port(("INIT", "LinkUp")), LinkState.NO_MANAGER),
        (a_port(("ARMED", "LinkUp"), was_up=False), LinkState.NO_MANAGER),
    ],
)
def test_state_of_a_port_alone(port: PortSeen, link: LinkState) -> None:
    assert judged(port) == link


def test_port_that_never_was_up_is_missed_when_most_of_its_kind_are_up() -> None:
    never = a_port(POLLING, was_up=False)

    assert judged(never, *[a_port()] * 3) == LinkState.NEVER_UP
    assert judged(never, *[a_port()] * 2) == LinkState.UNUSED, "too few to say what is usual"
    assert judged(never, *[a_port(kind="storage")] * 3) == LinkState.UNUSED
    assert judged(never, *[a_port()] * 3, *[never] * 2) == LinkState.UNUSED, "half of them are not in use"
