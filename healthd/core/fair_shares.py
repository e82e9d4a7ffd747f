"""Even shares of what is scarce, so that nobody waits for what one of them begins in numbers."""

from __future__ import annotations

from collections.abc import Sequence


def may_begin(who: str, running: Sequence[str], at_once: int) -> bool:
    """
    Whether one more of *who* may begin beside *running*, the owner of each that is under way.

    One owner alone has all *at_once*. Several have even shares, one at least, and need not wait for the one that took
    more before they came: so there may be more, up to twice *at_once*.
    """
    share = max(1, at_once // len({who, *running}))
    return running.count(who) < share and len(running) < 2 * at_once
