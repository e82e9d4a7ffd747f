"""Even shares of a limited number of slots: one owner that starts many tasks does not block the others."""

from __future__ import annotations

from collections.abc import Sequence


def may_begin(who: str, running: Sequence[str], at_once: int) -> bool:
    """
    Whether one more task of owner *who* may begin. *running* has the owner of each running task.

    A single owner may use all *at_once* slots. Several owners have even shares, at least one slot each. A new owner
    does not wait for an owner that already has more than its share. So more tasks may run for a time: up to twice
    *at_once*.
    """
    share = max(1, at_once // len({who, *running}))
    return running.count(who) < share and len(running) < 2 * at_once
