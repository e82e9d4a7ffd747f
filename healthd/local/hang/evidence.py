"""
Asks all witnesses once when the ranks of a run have fallen silent, and votes who holds up the others.

The questions are asked in a thread, within one deadline, so that no loop of the run waits for a stack, a dump or a file
system. What has been read by the deadline is what is voted on. Nothing here stops or signals a rank.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from math import isnan
from pathlib import Path

import structlog
from msgspec.structs import replace

from healthd.core.hang.history import ActivityHistory
from healthd.core.hang.member import MemberRhythm
from healthd.core.hang.silence import GangRhythm, Silence
from healthd.core.hang.suspects.evidence import LONGEST_LINE, MOST_GROUPS, Activity, RankEvidence, bounded
from healthd.core.hang.suspects.ras import RasRank
from healthd.core.hang.suspects.vote import HangLocation, vote
from healthd.core.untrusted import number_or
from healthd.local.hang.nccl_ranks import ask_nccl
from healthd.local.hang.record import HangRecord
from healthd.local.processes.main_process import main_process
from healthd.local.processes.runner import RunningRank
from healthd.probes.errors import CannotRead
from healthd.probes.hang.gather import DEADLINE_S, LocalRank, gather
from healthd.probes.hang.nccl_ras import PORT
from healthd.threads import in_thread

log = structlog.get_logger(__name__)

_LAST_S = 1.0
"""No stack is asked for in the last second: what is under way then may still come back."""
_DUMPS = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
"""Where torch dumps its flight recorder: the rank is added to the path. The second is the name before torch 2.7."""
_STILL_ASKED = "an earlier question has no answer yet: something holds the files or processes of the ranks"

Report = Callable[[Silence, HangRecord], Awaitable[None]]


class HangLocator:
    """Asks for each silence once, and gives the answer to *report*, in any case once."""

    def __init__(
        self, report: Report, *, dumps: str = "", ras_port: int = PORT, deadline_s: float = DEADLINE_S
    ) -> None:
        """*dumps* is the beginning of the paths of torch's dumps. Empty: there are none."""
        self._report = report
        self._dumps = dumps
        self._deadline_s = deadline_s
        self._ras_port = ras_port
        self._questions: list[_Question] = []
        """The last. They are open also while a thread that was left behind still waits for an answer."""

    async def locate(
        self,
        silence: Silence,
        ranks: Sequence[RunningRank],
        activities: Mapping[str, Activity],
        history: ActivityHistory | None = None,
    ) -> HangRecord:
        """
        Ask about *ranks*, and report. *activities* is what each rank did in the silence, by rank. *history* is what
        they did before, which is kept with the answer.

        Cancel it when a rank has ended or works again. It reports that, too.
        """
        try:
            record = await self._ask(silence, ranks, activities)
        except asyncio.CancelledError:
            record = _without_answer(silence, "a rank ended or worked again while it was asked")
            await self._report(silence, replace(record, history=history))
            raise
        except Exception as error:  # a run must not end because a question failed
            record = _without_answer(silence, f"the vote failed: {error!r}")
        record = replace(record, history=history)
        await self._report(silence, record)
        return record

    async def _ask(
        self, silence: Silence, ranks: Sequence[RunningRank], activities: Mapping[str, Activity]
    ) -> HangRecord:
        if any(question.is_open for question in self._questions):
            return _without_answer(silence, _STILL_ASKED)
        questions = _Questions(ranks, self._dumps, silence.since, self._deadline_s, self._ras_port)
        self._questions = [_Question(questions.ask), _Question(questions.ask_nccl)]
        try:
            why = await self._asked()
        finally:
            questions.is_over = True
        known = [replace(each, activity=activities.get(str(each.rank))) for each in questions.answers()]
        if not known:
            return _without_answer(silence, why)
        return HangRecord(since=silence.since, location=vote(known), ranks=tuple(known))

    async def _asked(self) -> str:
        """Why nothing may be known when the questions have been asked: that one fails is no reason to lose the rest."""
        threads = [in_thread(question.ask, "hang evidence") for question in self._questions]
        try:
            async with asyncio.timeout(self._deadline_s):
                outcomes = await asyncio.gather(*threads, return_exceptions=True)
        except TimeoutError:
            return f"no witness answered within {self._deadline_s:g} s"
        failed = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        if not failed:
            return "the processes of the ranks were not found"
        log.info("hang.question_failed", error=repr(failed[0]))
        return f"the witnesses could not be asked: {failed[0] or type(failed[0]).__name__}"


class _Question:
    """What is asked in a thread. It *is_open* until that has ended, which may be long after its deadline."""

    def __init__(self, work: Callable[[], None]) -> None:
        self.is_open = False
        self._work = work

    def ask(self) -> None:
        """In the thread."""
        self.is_open = True
        try:
            self._work()
        finally:
            self.is_open = False


class _Questions:
    """What is asked of all witnesses, in two threads. *known* and *ras* grow meanwhile."""

    def __init__(
        self, ranks: Sequence[RunningRank], dumps: str, since: datetime, deadline_s: float, ras_port: int
    ) -> None:
        self.known: Sequence[RankEvidence] = ()
        self.ras: dict[int, RasRank] = {}
        self.is_over = False
        self._ranks = [rank for rank in ranks if rank.rank.isdecimal()]
        self._dumps = dumps
        self._since = since
        self._left_s = max(0.0, deadline_s - _LAST_S)
        self._ras_port = ras_port

    def ask(self) -> None:
        """Takes long where a file system or a driver holds it."""
        gather(
            [asked for rank in self._ranks if (asked := self._local_rank(rank)) is not None],
            newer_than=self._since.timestamp(),
            deadline_s=self._left_s,
            keep=self._keep,
            is_over=lambda: self.is_over,
        )

    def ask_nccl(self) -> None:
        """Asks RAS where that is safe. It wants the whole gang."""
        pids = [main_process(rank.pid, rank.shim) for rank in self._ranks]
        if not all(pids):
            return
        try:
            answer = ask_nccl(pids, port=self._ras_port, deadline_s=self._left_s)
        except CannotRead as error:
            log.info("hang.nccl_not_asked", why=str(error))
            return
        if not self.is_over:
            self.ras = answer

    def answers(self) -> list[RankEvidence]:
        """What is known now."""
        return [_with_ras(each, self.ras.get(each.rank)) for each in self.known]

    def _keep(self, known: Sequence[RankEvidence]) -> None:
        if not self.is_over:
            self.known = known

    def _local_rank(self, rank: RunningRank) -> LocalRank | None:
        """None: its command has ended, and its number may be that of another process."""
        pid = main_process(rank.pid, rank.shim)
        number = number_or(rank.rank, 0)
        dump = f"{self._dumps}{number}" if self._dumps else ""
        return LocalRank(number, pid, node=rank.node, dump=dump, log=rank.log) if pid else None


def _with_ras(known: RankEvidence, ras: RasRank | None) -> RankEvidence:
    if ras is None:
        return known
    return replace(known, groups=(*known.groups, *ras.groups)[:MOST_GROUPS], lost_by_ras=ras.lost)


def _without_answer(silence: Silence, reason: str) -> HangRecord:
    return HangRecord(since=silence.since, location=HangLocation(ranks=0, reason=bounded(reason, LONGEST_LINE)))


def dumps_in(environ: Mapping[str, str], working_dir: Path) -> str:
    """The beginning of the paths of torch's dumps, by the variables of ranks. Empty: the owner did not ask for any."""
    path = next((environ[name] for name in _DUMPS if environ.get(name)), "")
    return str(working_dir / path) if path else ""


def activities_of(rhythm: GangRhythm, since: datetime) -> dict[str, Activity]:
    """What each member did after *since*, by rank. A sample covers the second before it."""
    return {
        rank: activity for rank, member in rhythm.members.items() if (activity := _activity(member, since)) is not None
    }


def _activity(member: MemberRhythm, since: datetime) -> Activity | None:
    means = member.ring.means_since(since)
    if means is None:
        return None
    computes = member.rhythm is not None and member.rhythm.shows_to_compute(means)
    known = Activity(cpu=means.cpu, io=means.read + means.written, network=means.network, computes=computes)
    if member.rhythm is None or "gpu" not in member.rhythm.means or isnan(means.kernels):
        return known
    return replace(known, gpu_utilisation=100 * min(1.0, means.kernels))
