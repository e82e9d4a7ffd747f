"""
What a gang really does: steps while every rank lives and no hardware under it is broken, and the checkpoints it leaves.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from healthd.controller.ports import CheckpointAnswer
from healthd.core.api import ChosenCheckpoint, Job, RejectedCheckpoint
from healthd.core.recovery.gang import Root
from tests.simulation.machines import Machines, Process
from tests.simulation.step_scheduler import TURN

SAVES_EVERY = timedelta(seconds=20)
"""One step and one checkpoint take so long."""


@dataclass
class Saved:
    """
    A checkpoint in the store. One that is not *whole* looks like one, and will not load. One that is whole and does not
    *load* holds by all that can be seen of it. *number* tells one save from the next over the same step.
    """

    step: int
    path: str
    whole: bool
    number: int
    loads: bool = True
    is_readable: bool = True
    """By healthd, now."""

    @property
    def seen(self) -> ChosenCheckpoint:
        """As healthd knows it."""
        return ChosenCheckpoint(path=self.path, step=self.step, saved_ns=self.number)


@dataclass
class Store:
    """The checkpoints of one gang. *outage*: `error` raises, `empty` shows nothing, as an unmounted path does."""

    saved: list[Saved] = field(default_factory=list)
    outage: str = ""
    saves: int = 0
    """So many were made."""

    def newest_whole(self) -> Saved | None:
        """The one to resume from."""
        return max((s for s in self.saved if s.whole), key=lambda s: s.step, default=None)

    def save(self, gang: str, step: int, *, whole: bool) -> None:
        """Write a checkpoint over one of the same step."""
        self.saved = [s for s in self.saved if s.step != step]
        self.saves += 1
        self.saved.append(Saved(step, f"/checkpoints/{gang}/step_{step}", whole, self.saves))


@dataclass
class Training:
    """One run of the gang's program: an attempt whose ranks are all alive."""

    root: str
    attempt: int
    began: int
    """The step that it resumed from."""
    step: int
    since: datetime


class Trainers:
    """The programs of all gangs."""

    def __init__(self, machines: Machines, dice: random.Random, *, torn_chance: float = 0.3) -> None:
        self._machines = machines
        self._dice = dice
        self._torn_chance = torn_chance
        """How often an interrupted gang leaves a torn checkpoint behind."""
        self.stores: dict[str, Store] = {}
        self.stalled: set[str] = set()
        """Gangs whose program stands still though nothing is broken."""
        self.crash_at: dict[str, int] = {}
        """Gangs with a bug: every rank fails before it has made so many steps since it was resumed."""
        self.fails_at: dict[str, int] = {}
        """Gangs with a bug: every rank fails at this step, wherever it was resumed."""
        self.exit_codes: dict[str, int] = {}
        """Of the ranks that fail by a bug; 1 where nothing is said."""
        self.last_step_at: dict[str, datetime] = {}
        self._runs: dict[str, Training] = {}

    def work(self, jobs: Iterable[Job], now: datetime) -> None:
        """Let every gang take the steps that fit into the time that passed."""
        for job in jobs:
            gang, world = job.metadata.name, job.spec.completions or 1
            ranks = self._machines.processes(gang, job.metadata.uid)
            if self._can_step(gang, ranks, world):
                self._step(gang, ranks, now)
            else:
                self._interrupt(gang)

    def next_save(self, now: datetime) -> datetime:
        """When the next checkpoint of any gang is due."""
        return min([run.since + SAVES_EVERY for run in self._runs.values()], default=now + SAVES_EVERY)

    def _can_step(self, gang: str, ranks: list[Process], world: int) -> bool:
        attempts = {rank.attempt for rank in ranks}
        complete = len({rank.index for rank in ranks}) >= world and len(attempts) == 1
        whole = not any(self._machines.all[rank.node].broken for rank in ranks)
        ending = any(rank.ends_at is not None for rank in ranks)
        return complete and whole and not ending and gang not in self.stalled

    def _step(self, gang: str, ranks: list[Process], now: datetime) -> None:
        run = self._runs.get(gang)
        if run is None or (run.root, run.attempt) != (ranks[0].root, ranks[0].attempt):
            began = self._begins(gang, ranks[0])
            run = self._runs[gang] = Training(ranks[0].root, ranks[0].attempt, began, began, now)
        while now - run.since >= SAVES_EVERY:
            is_stuck = gang in self.crash_at and run.step - run.began >= self.crash_at[gang]
            if is_stuck or run.step >= self.fails_at.get(gang, run.step + 1) or not self._could_load(gang, run):
                for rank in ranks:
                    rank.ends_at, rank.exit_code = run.since + SAVES_EVERY, self.exit_codes.get(gang, 1)
                return
            run.since += SAVES_EVERY
            run.step += 1
            self.stores[gang].save(gang, run.step, whole=True)
            self.last_step_at[gang] = now

    def _could_load(self, gang: str, run: Training) -> bool:
        began = next((saved for saved in self.stores[gang].saved if saved.step == run.began), None)
        return began is None or run.step > run.began or began.loads

    def _begins(self, gang: str, rank: Process) -> int:
        """Where it is to, or at the newest that it finds itself: a user set it going."""
        newest = self.stores[gang].newest_whole()
        return rank.resumed_at if rank.resumed_at >= 0 or newest is None else newest.step

    def _interrupt(self, gang: str) -> None:
        run = self._runs.pop(gang, None)
        if run is not None and self._dice.random() < self._torn_chance:
            self.stores[gang].save(gang, run.step + 1, whole=False)


class SeenCheckpoints:
    """A `Checkpoints` over the true stores, with their outages."""

    def __init__(self, stores: dict[str, Store]) -> None:
        self._stores = stores

    async def latest(
        self,
        root: Root,
        newer_than: int | None = None,
        recovery: object = None,
        doubted: Sequence[ChosenCheckpoint] = (),
    ) -> CheckpointAnswer:
        """The newest whole checkpoint, and the newer ones that are not; a doubted one where there is no other."""
        floor = -1 if newer_than is None else newer_than
        saved = [s for s in self._visible(root) if s.step > floor]
        all_whole = [s for s in saved if s.whole and s.is_readable]
        trusted = [s for s in all_whole if s.seen not in doubted]
        whole = max(trusted or (all_whole if newer_than is None else []), key=lambda s: s.step, default=None)
        refused = [s for s in saved if s not in all_whole and (whole is None or s.step > whole.step)]
        rejected = [_rejected(s) for s in refused]
        rejected += [
            RejectedCheckpoint(path=s.path, step=s.step, reason="the gang failed on it")
            for s in all_whole
            if whole is not None and s.step > whole.step
        ]
        rejected.sort(key=lambda r: r.step, reverse=True)
        return CheckpointAnswer(whole.seen if whole else None, rejected)

    async def newest_step(self, root: Root) -> int | None:
        """The highest step by name."""
        return max((s.step for s in self._visible(root)), default=None)

    def _visible(self, root: Root) -> list[Saved]:
        store = self._stores[root.ref.name]
        if store.outage == "error":
            raise OSError("the store does not answer")
        is_elsewhere = root.options.checkpoint != f"/checkpoints/{root.ref.name}"
        return [] if store.outage == "empty" or is_elsewhere else store.saved


def _rejected(saved: Saved) -> RejectedCheckpoint:
    why = "it is torn" if saved.is_readable else "503"
    return RejectedCheckpoint(path=saved.path, step=saved.step, reason=why, unread=not saved.is_readable)


class OvertakenCheckpoints(SeenCheckpoints):
    """Others may go on while a store is asked, and again before its answer arrives."""

    async def latest(
        self,
        root: Root,
        newer_than: int | None = None,
        recovery: object = None,
        doubted: Sequence[ChosenCheckpoint] = (),
    ) -> CheckpointAnswer:
        """As it was between the two."""
        await TURN
        answer = await super().latest(root, newer_than, recovery, doubted)
        await TURN
        return answer

    async def newest_step(self, root: Root) -> int | None:
        """As it was between the two."""
        await TURN
        answer = await super().newest_step(root)
        await TURN
        return answer
