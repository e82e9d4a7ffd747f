"""Pods of one node, made up: what each of them uses in each second, and which of them its agent samples."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta

from healthd.core.api import PodRhythm
from healthd.core.hang.pods import CHOOSE_EVERY, PodRhythms
from healthd.core.hang.samples import Usage
from tests.fakes import START

SECOND = timedelta(seconds=1)
Second = Callable[[random.Random], Usage]


def trains(dice: random.Random) -> Usage:
    """A rank, as its control group shows it."""
    share = dice.uniform(0.8, 1.2)
    return Usage(cpu=share, faults=60 * share, system=0.08 * share)


def trains_without_the_kernel(dice: random.Random) -> Usage:
    """One of which only the processor time tells something."""
    return Usage(cpu=dice.uniform(0.8, 1.2))


def sleeps(dice: random.Random) -> Usage:
    """Background threads wake up now and then."""
    return Usage(cpu=dice.uniform(0, 0.004))


def spins(dice: random.Random) -> Usage:
    """It polls in user space."""
    return Usage(cpu=dice.uniform(0.95, 1.0), system=dice.uniform(0, 0.003))


def trains_little(dice: random.Random) -> Usage:
    """A small model, which mostly waits. A third of its processor time is in the kernel."""
    share = dice.uniform(0.8, 1.2)
    return Usage(cpu=0.13 * share, faults=1400 * share, system=0.04 * share)


def loops(dice: random.Random) -> Usage:
    """Without an end. The interrupts of its processor are counted as its time in the kernel, in whole ticks."""
    return Usage(cpu=dice.uniform(0.7, 1.0), system=dice.choice((0.0, 0.01, 0.01, 0.02)))


def serves(dice: random.Random) -> Usage:
    """A web server with little to do."""
    return Usage(cpu=dice.uniform(0, 0.1), faults=3)


class Node:
    """Pods that each do the same for a while; those that are chosen are sampled each second."""

    def __init__(self, most: int = 64, *, work: bool = True) -> None:
        self.rhythms = PodRhythms(most, timedelta(0) if work else None)
        self.used: dict[str, Usage] = {}
        self.now = START
        self.finely = False
        self._dice = random.Random(3)

    def run(self, seconds: int, **pods: Second) -> None:
        """Pods that are left out are gone."""
        self.used = {uid: self.used.get(uid, Usage()) for uid in pods}
        for _ in range(seconds):
            if (self.now - START) % CHOOSE_EVERY == timedelta(0):
                self.rhythms.choose({uid: used.cpu for uid, used in self.used.items()}, self.now)
            sampled = [uid for uid in self.rhythms.sampled if uid in pods]
            self.rhythms.observe({uid: self.used[uid] for uid in sampled}, self.now, finely=self.finely)
            self.now += SECOND
            for uid, second in pods.items():
                more = second(self._dice)
                added = (a + b for a, b in zip(self.used[uid][:-1], more[:-1], strict=True))
                self.used[uid] = Usage._make([*added, ""])

    def states(self) -> dict[str, str]:
        """What is published, by uid."""
        return {rhythm.uid: str(rhythm.state) for rhythm in self.rhythms.published()}

    def only(self) -> PodRhythm:
        """What is published of the one pod."""
        [rhythm] = self.rhythms.published()
        return rhythm
