"""
Reads of checkpoints in the background: a slow store, or one that never answers, delays no gang.

The controller never waits for a store. In a reconcile it asks, uses the result of the last read, and goes on. A read
with a new result marks its gang dirty, and the gang is reconciled again.

A gang has one read at a time. An answer is valid only for the question that it was read for. The attempt and the
purpose are part of the question: a read from before a stop or a start of the gang is never used after it. A question
that a reconcile does not ask again is dropped with its read. So nothing stays for a gang that is gone or has changed.

All reads together are bounded, in even shares by namespace. The reads of recoveries come first. A read that fails is
tried again with backoff. The process that runs the controller runs the reads (`CheckpointReads.run`); when that is
cancelled, the reads are cancelled, too.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from typing import Any, NamedTuple

import structlog

from healthd.clock import Clock
from healthd.cluster.port import ClusterError
from healthd.controller.cache.cluster_state import GangKey, key_of
from healthd.core.api import ChosenCheckpoint, GangRef, Recovery
from healthd.core.backoff import Backoff, Jitter, no_jitter
from healthd.core.checkpoint.verification import SaveId, saves
from healthd.core.fair_shares import may_begin
from healthd.core.recovery.gang import Root

log = structlog.get_logger()

AT_ONCE = 32
"""Reads at the same time, as `core.fair_shares` counts them. Most only wait for one of a few processes, or for a
pod."""
RETRY, RETRY_MOST = timedelta(seconds=1), timedelta(minutes=1)
"""Backoff after a failed read: the first wait, and the longest; doubled in between."""


class ReadPurpose(StrEnum):
    """Why the checkpoints of a gang are read."""

    PROGRESS = "progress"
    """The gang runs: how far is it?"""
    SILENCE = "silence"
    """The gang seems to hang: is there really no new step? A read that began before the suspicion is no answer."""
    RESUME = "resume"
    """The gang is stopped: from which checkpoint does it resume?"""
    CONFIRM = "confirm"
    """The gang was started: does it make progress?"""
    PLANNED_RESTART = "planned-restart"
    """The gang could be restarted without a fault: would its newest checkpoint load?"""


_CAN_WAIT = frozenset({ReadPurpose.PROGRESS, ReadPurpose.PLANNED_RESTART})
"""No recovery waits for these."""


class ReadRequest(NamedTuple):
    """What a read has to answer. Two questions that differ in any field are different questions."""

    purpose: ReadPurpose
    attempt: int
    location: str
    format: str
    recovery: str = ""
    newer_than: int | None = None
    doubted: tuple[SaveId, ...] = ()


def question_of(
    purpose: ReadPurpose,
    root: Root,
    recovery: Recovery | None = None,
    newer_than: int | None = None,
    doubted: Sequence[ChosenCheckpoint] = (),
) -> ReadRequest:
    """The question about the gang of *root*, for *recovery* where there is one."""
    attempt = recovery.status.attempt if recovery else root.attempt
    name = recovery.metadata.name if recovery else ""
    location, fmt = root.options.checkpoint, root.options.checkpoint_format
    return ReadRequest(purpose, attempt, location, fmt, name, newer_than, saves(doubted))


@dataclass(slots=True, eq=False, kw_only=True)
class BackgroundRead:
    """One read, from the time of the request. Times are by the controller's clock."""

    gang: GangRef
    question: ReadRequest
    work: Callable[[], Awaitable[Any]]
    known: Any
    """An answer equal to this is not new."""
    every: timedelta
    asked: datetime
    ended: datetime | None = None
    answer: Any = None
    error: str = ""
    """Why there is no answer, for a person to read."""
    is_passing: bool = False
    """The error was in the cluster, not in the store: the state of the store is not known."""
    task: asyncio.Task[None] | None = None


class _Gang:
    """The reads of one gang: the one that waits or runs, and the last one that ended."""

    def __init__(self, question: ReadRequest, jitter: Jitter) -> None:
        self.question = question
        self.current: BackgroundRead | None = None
        self.last: BackgroundRead | None = None
        self.not_before: datetime | None = None
        self.is_asked = False
        self.backoff = Backoff(RETRY, RETRY_MOST, jitter)
        self.trouble = ""


class CheckpointReads:
    """The reads for one controller. *touch* marks a gang dirty when a read has a new result for it."""

    def __init__(self, clock: Clock, touch: Callable[[GangKey], None], jitter: Jitter = no_jitter) -> None:
        self._clock = clock
        self._touch = touch
        self._jitter = jitter
        self._gangs: dict[str, _Gang] = {}
        self._at: dict[GangKey, set[str]] = defaultdict(set)
        self._waiting: dict[tuple[bool, str], dict[str, BackgroundRead]] = defaultdict(dict)
        """Reads that have not begun, by uid of the gang; the outer key is whether they can wait, and the namespace."""
        self._running: list[BackgroundRead] = []
        self._wanted = asyncio.Event()

    # Called in a reconcile -------------------------------------------------------------------------------------------

    @contextmanager
    def attending(self, gang: GangRef) -> Iterator[None]:
        """One reconcile of *gang*. A read that is not asked for in it is dropped at its end, unless it fails."""
        if (known := self._gangs.get(gang.uid)) is not None:
            known.is_asked = False
        yield
        if (known := self._gangs.get(gang.uid)) is not None and not known.is_asked:
            self._drop(gang)

    def ask(
        self,
        gang: GangRef,
        question: ReadRequest,
        work: Callable[[], Awaitable[Any]],
        *,
        every: timedelta,
        known: Any = None,
    ) -> BackgroundRead | None:
        """
        The last read for *question* that ended. Before there is one: the read that will answer it, if there is any.

        A further read is queued when none waits or runs and the last one ended *every* ago.
        """
        self._at[key_of(gang)].add(gang.uid)
        mine = self._gangs.setdefault(gang.uid, _Gang(question, self._jitter))
        mine.is_asked = True
        if mine.question != question:
            self._forget(gang.uid, mine)
            mine.question, mine.last, mine.not_before = question, None, None
        now = self._clock.now()
        if mine.current is None and (mine.not_before is None or now >= mine.not_before):
            mine.current = BackgroundRead(gang=gang, question=question, work=work, known=known, every=every, asked=now)
            self._waiting[question.purpose in _CAN_WAIT, gang.namespace][gang.uid] = mine.current
            self._wanted.set()
        return mine.last or mine.current

    def is_asked(self, gang: GangRef, purpose: ReadPurpose) -> bool:
        """Whether a read for *purpose* waits or runs."""
        known = self._gangs.get(gang.uid)
        return known is not None and known.current is not None and known.question.purpose is purpose

    def use(self, read: BackgroundRead) -> None:
        """Mark the answer of *read* as used: it is not returned a second time."""
        mine = self._gangs.get(read.gang.uid)
        if mine is not None and mine.last is read:
            mine.last = None

    def again(self, read: BackgroundRead, wait: timedelta) -> None:
        """Read again *wait* after the end of *read*."""
        mine = self._gangs.get(read.gang.uid)
        if mine is not None and mine.last is read and read.ended is not None:
            mine.not_before = read.ended + wait

    def drop_others(self, key: GangKey, gangs: Collection[GangRef]) -> None:
        """Drop the reads of gangs at *key* that are not in *gangs*: those gangs are gone."""
        left = {gang.uid for gang in gangs}
        for uid in self._at.get(key, set()) - left:
            self._drop_at(key, uid)

    def _drop(self, gang: GangRef) -> None:
        """Cancel the read of a gang, and forget its results."""
        self._drop_at(key_of(gang), gang.uid)

    def _drop_at(self, key: GangKey, uid: str) -> None:
        self._at[key].discard(uid)
        if not self._at[key]:
            del self._at[key]
        if (mine := self._gangs.pop(uid, None)) is not None:
            self._forget(uid, mine)

    def _forget(self, uid: str, mine: _Gang) -> None:
        read, mine.current = mine.current, None
        if read is None:
            return
        self._take_off(read, uid)
        if read.task is not None:
            read.task.cancel()

    def _take_off(self, read: BackgroundRead, uid: str) -> None:
        place = read.question.purpose in _CAN_WAIT, read.gang.namespace
        if place in self._waiting:
            self._waiting[place].pop(uid, None)
            if not self._waiting[place]:
                del self._waiting[place]

    # Run in the background -------------------------------------------------------------------------------------------

    async def run(self, wake: Callable[[GangKey], None]) -> None:
        """Run reads until cancelled; they are then cancelled, too. *wake* is called with each gang to reconcile."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._wanted.clear()
                for read in self.begin():
                    read.task = tasks.create_task(self._take_and_wake(read, wake), name=f"read {read.gang.name}")
                    read.task.add_done_callback(partial(self._leave, read))  # also for a read that never began
                await self._wanted.wait()

    async def _take_and_wake(self, read: BackgroundRead, wake: Callable[[GangKey], None]) -> None:
        if await self.take(read):
            wake(key_of(read.gang))

    def begin(self) -> list[BackgroundRead]:
        """The reads to run now; the caller must run each of them (`take`)."""
        begun: list[BackgroundRead] = []
        for place in sorted(self._waiting):
            _, namespace = place
            queue = self._waiting[place]
            while queue and may_begin(namespace, [each.gang.namespace for each in self._running], AT_ONCE):
                read = queue.pop(next(iter(queue)))
                self._running.append(read)
                begun.append(read)
            if not queue:
                del self._waiting[place]
        return begun

    async def take(self, read: BackgroundRead) -> bool:
        """Run *read*. Returns whether its result is new; False when the read was dropped in the meantime."""
        try:
            read.answer = await read.work()
        except (ClusterError, OSError) as error:
            read.error = str(error) or type(error).__name__
            read.is_passing = isinstance(error, ClusterError)
        except Exception as error:  # a bug of ours with one gang must not end the reads for the others
            log.exception("checkpoints.failed", gang=read.gang.name, namespace=read.gang.namespace, error=str(error))
            read.error = f"a fault of healthd: {type(error).__name__}: {error}"
        finally:
            self._leave(read)
        mine = self._gangs.get(read.gang.uid)
        return mine is not None and mine.current is read and self._keep(mine, read)

    def _leave(self, read: BackgroundRead, _: asyncio.Task[None] | None = None) -> None:
        if read in self._running:
            self._running.remove(read)
            self._wanted.set()  # another one may begin

    def _keep(self, mine: _Gang, read: BackgroundRead) -> bool:
        before, mine.last, mine.current = mine.last, read, None
        read.ended = self._clock.now()
        self._log(mine, read)
        wait = read.every
        if read.error:
            again = mine.backoff.next()
            wait = again if read.is_passing else max(wait, again)
        else:
            mine.backoff.reset()
        mine.not_before = read.ended + wait
        known = (before.answer, before.error) if before else (read.known, "")
        if (read.answer, read.error) == known:
            return False
        self._touch(key_of(read.gang))
        return True

    def _log(self, mine: _Gang, read: BackgroundRead) -> None:
        """Log an error once, and its end once."""
        if read.error == mine.trouble:
            return
        gang = {"gang": read.gang.name, "namespace": read.gang.namespace, "purpose": read.question.purpose.value}
        if read.error:
            log.warning("checkpoints.unread", **gang, why=read.error)
        else:
            log.info("checkpoints.read_again", **gang)
        mine.trouble = read.error
