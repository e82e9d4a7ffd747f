"""When main threads are looked at, by a thread of its own."""

from __future__ import annotations

import math
import os
import threading

from healthd.probes.usage.looks import Looks, pause
from healthd.probes.usage.process_tree import ProcessTree


class Tree(ProcessTree):
    """It counts the looks, and says when there were some."""

    def __init__(self) -> None:
        super().__init__(os.getpid())
        self.looks: list[float] = []
        self.seen = threading.Event()

    def look(self, now: float) -> None:
        self.looks.append(now)
        if len(self.looks) == 3:
            self.seen.set()


def test_pauses_between_looks_differ_so_that_no_step_is_seen_at_the_same_place_each_time() -> None:
    pauses = [pause(0.4) for _ in range(1000)]

    assert all(0.2 <= each <= 0.6 for each in pauses)
    assert min(pauses) < 0.24
    assert max(pauses) > 0.56


def test_trees_are_looked_at_again_and_again_until_that_is_stopped() -> None:
    looks, tree = Looks(), Tree()
    looks.every = 0.01
    looks.looked_at = (tree,)
    looks.start()
    try:
        assert tree.seen.wait(60)
    finally:
        looks.stop()
    assert tree.looks == sorted(tree.looks)


def test_nothing_is_looked_at_after_the_time_for_which_looks_were_wanted() -> None:
    looks, over, wanted = Looks(), Tree(), Tree()
    looks.every, looks.until = 0.01, 0.0
    looks.looked_at = (over,)
    looks.start()
    try:
        looks.looked_at, looks.until = (wanted,), math.inf
        assert wanted.seen.wait(60)
    finally:
        looks.stop()
    assert over.looks == []
