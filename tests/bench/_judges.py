"""
The two ways in which healthd judges that a gang hangs, as they run: fed with samples, without processes and clusters.

`OfRun` is what `healthd run` does with its ranks. `OfPods` is what the agents of their nodes and a controller do: the
agents sample, wait, and publish; the controller reads what was published. Restarts are allowed in both.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import msgspec

from healthd.agent.rhythms import SettledRhythms
from healthd.core.api import NodeHealthStatus, Pod
from healthd.core.config import HangPolicy
from healthd.core.config.gangs import SilenceMode
from healthd.core.hang.pods import CHOOSE_EVERY, PodRhythms
from healthd.core.hang.samples import Stall, Usage
from healthd.core.hang.silence import GangRhythm, Silence
from healthd.core.hang.start import Start
from healthd.core.node.reporting import quiet_pods, write_at
from healthd.core.recovery.gang import GangOptions, GangView
from healthd.core.recovery.hangs.gang_silence import observed_silence, to_restart_for
from healthd.core.recovery.hangs.silence_record import next_record
from healthd.core.recovery.progress import NO_PROGRESS, Progress, advance, has_rhythm, is_past_waiting
from tests.bench._job_model import Sample
from tests.builders import a_node, a_nodehealth
from tests.core.gangs import a_root
from tests.core.recovery.silences import a_rank

ASKED = timedelta(seconds=2)
"""From a report of `healthd run` to the vote, before which nothing is restarted."""
STORE_READ = 30.0
"""Seconds after which a controller has read a new step."""
POLICY = HangPolicy(silence=SilenceMode.RESTART)


class OfRun:
    """`healthd run --hang restart`."""

    def __init__(self) -> None:
        self.rhythm = GangRhythm(starts=Start)
        self.silence: Silence | None = None
        self.reports: list[Silence] = []
        self.restarts: list[datetime] = []
        self._progress, self._steps, self._attempt = NO_PROGRESS, 0, 0

    def observe(self, sample: Sample) -> None:
        """One sample."""
        if sample.has_saved:
            self._steps += 1
            self._progress = advance(self._progress, self._steps, sample.attempt, sample.at)
        if sample.processes is None or sample.attempt != self._attempt:
            self._attempt = sample.attempt
            self._forget()
        if sample.processes is None:
            return
        usages = {str(rank): used for rank, used in enumerate(sample.processes)}
        silence = self.rhythm.observe(usages, sample.at, saves=sample.saves)
        if silence is not None and self.silence is None:
            self.reports.append(silence)
        self.silence = silence
        is_asked = silence is not None and sample.at - silence.seen_at >= ASKED and has_rhythm(self._progress)
        if silence is not None and is_asked and self._is_past_waiting(silence, sample):
            self.restarts.append(sample.at)
            self._forget()

    def _is_past_waiting(self, silence: Silence, sample: Sample) -> bool:
        return is_past_waiting(silence, self._progress, POLICY, sample.attempt, sample.at)

    def _forget(self) -> None:
        self.rhythm.restart()
        self.silence = None


class OfPods:
    """Agents and a controller, with `healthd.dev/hang: restart`. *per_node* ranks share a node."""

    def __init__(self, ranks: int, per_node: int, dice: random.Random) -> None:
        self.reports: list[Silence] = []
        self.restarts: list[datetime] = []
        self._dice = dice
        self._uids = [f"uid-train-{rank}" for rank in range(ranks)]
        self._agents = [_Agent(self._uids[at : at + per_node], dice) for at in range(0, ranks, per_node)]
        self._nodes = {f"node-{number}": a_node(f"node-{number}") for number in range(len(self._agents))}
        self._node_of = {uid: f"node-{rank // per_node}" for rank, uid in enumerate(self._uids)}
        self._root = a_root(world=ranks, options=GangOptions(restart=True, hang=SilenceMode.RESTART))
        self._pods: Sequence[Pod] = ()
        self._unread: list[tuple[datetime, int]] = []
        self._steps, self._attempt = 0, -1

    def observe(self, sample: Sample) -> None:
        """One sample of each agent."""
        now = sample.at
        self._read_steps(sample)
        if sample.groups is None or sample.attempt != self._attempt:
            self._start(sample)
        used = dict(zip(self._uids, sample.groups or (), strict=False))
        written = [agent.observe(used, now) for agent in self._agents]
        if sample.groups is None or not (any(written) or self._may_hang):
            return
        view = self._view()
        seen = observed_silence(view, POLICY, now)
        if (record := next_record(view, seen, now)) is not None:
            self._root = replace(self._root, silence=record)
            if record.ended_at is None:
                self.reports.append(record)
        silence = to_restart_for(self._root, seen, POLICY)
        progress = self._root.progress
        if silence and has_rhythm(progress) and is_past_waiting(silence, progress, POLICY, sample.attempt, now):
            self.restarts.append(now)
            self._forget(now)

    @property
    def _may_hang(self) -> bool:
        is_open = self._root.silence is not None and self._root.silence.ended_at is None
        return is_open or all(agent.has_quiet for agent in self._agents)

    def _start(self, sample: Sample) -> None:
        self._attempt = sample.attempt
        self._forget(sample.at)

    def _forget(self, now: datetime) -> None:
        """All pods are made again."""
        for agent in self._agents:
            agent.forget()
        self._root = replace(self._root, started_at=now)
        places = [(rank, uid, self._node_of[uid]) for rank, uid in enumerate(self._uids)]
        self._pods = [a_rank(rank, node=node, uid=uid, creation_timestamp=now) for rank, uid, node in places]

    def _read_steps(self, sample: Sample) -> None:
        if sample.has_saved:
            self._steps += 1
            self._unread.append((sample.at + timedelta(seconds=self._dice.uniform(0, STORE_READ)), self._steps))
        while self._unread and self._unread[0][0] <= sample.at:
            _, step = self._unread.pop(0)
            progress: Progress = advance(self._root.progress, step, sample.attempt, sample.at)
            self._root = replace(self._root, progress=progress)

    def _view(self) -> GangView:
        health = {
            name: a_nodehealth(name, status=agent.stored) for name, agent in zip(self._nodes, self._agents, strict=True)
        }
        return GangView(root=self._root, pods=tuple(self._pods), nodes=self._nodes, health=health)


class _Agent:
    """The agent of one node, and what it has written."""

    def __init__(self, uids: Sequence[str], dice: random.Random) -> None:
        self.stored = NodeHealthStatus(boot_id="boot-1")
        self._uids = uids
        self._dice = dice
        self._written_at: datetime | None = None
        self._chosen_at: datetime | None = None
        self.forget()

    def forget(self) -> None:
        """The pods are gone, and others take their place."""
        self._rhythms = PodRhythms()
        self._settled = SettledRhythms(self._dice.random)
        self._chosen_at = None

    @property
    def has_quiet(self) -> bool:
        """Whether a pod is quiet by what is written."""
        return bool(quiet_pods(self.stored.rhythms))

    def observe(self, used: dict[str, Usage], now: datetime) -> bool:
        """Whether something was written."""
        mine = {uid: used[uid] for uid in self._uids if uid in used}
        if self._chosen_at is None:
            self._rhythms.choose({"agent": 0.0}, now - CHOOSE_EVERY)  # it was there before its pods
        if self._chosen_at is None or now - self._chosen_at >= CHOOSE_EVERY:
            self._chosen_at = now
            self._rhythms.choose({uid: usage.cpu for uid, usage in mine.items()}, now)
        self._rhythms.observe({uid: mine[uid] for uid in self._rhythms.sampled if uid in mine}, now)
        if quiet := self._rhythms.to_look_at:
            self._rhythms.look_at({uid: Stall() for uid in quiet})
        published = self._settled.ingest(self._rhythms.published(), now)
        known = msgspec.structs.replace(self.stored, rhythms=list(published))
        if self._written_at is not None and now < write_at(self.stored, known, written=self._written_at):
            return False
        self.stored, self._written_at = msgspec.structs.replace(known, seen_at=now), now
        return True
