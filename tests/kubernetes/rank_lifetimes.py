"""
The lives of a gang's ranks, as the pods of its namespace showed them: when each began, and that no two overlapped.

A pod lives from when a kubelet may start it, which is when it has a node, until its kubelet calls it ended. A pod whose
object goes without that word has *vanished*: its end is somebody else's to prove.
"""

from __future__ import annotations

from collections import defaultdict

from healthd.core.api import Pod
from healthd.core.recovery.members import attempt_of, index_of, is_terminal


class Ranks:
    """Called for every state of every pod."""

    def __init__(self) -> None:
        self.lives: dict[str, list[str]] = defaultdict(list)
        """By rank: the uids of the pods that began, in order."""
        self.attempts: dict[str, list[int]] = defaultdict(list)
        """By rank: the attempt of each of those."""
        self.overlaps: list[str] = []
        """Where a pod began while another one of its rank lived; empty is what is wanted."""
        self.vanished: list[str] = []
        self._alive: dict[str, Pod] = {}
        """By uid."""

    def reported(self, pod: Pod) -> None:
        """It is there, in this state."""
        uid = pod.metadata.uid
        if is_terminal(pod):
            self._alive.pop(uid, None)
        elif pod.spec.node_name and uid not in self._alive and uid not in self.lives[rank_of(pod)]:
            self._begins(pod)

    def gone(self, name: str) -> None:
        """The object of this name is gone."""
        for uid, pod in list(self._alive.items()):
            if pod.metadata.name == name:
                self.vanished.append(name)
                del self._alive[uid]

    def alive_on(self, node: str) -> list[str]:
        """The uids of the pods that live on *node*."""
        return [uid for uid, pod in self._alive.items() if pod.spec.node_name == node]

    def _begins(self, pod: Pod) -> None:
        rank = rank_of(pod)
        for other in self._alive.values():
            if rank_of(other) == rank:
                self.overlaps.append(
                    f"{pod.metadata.name} on {pod.spec.node_name} began while {other.metadata.name} on "
                    f"{other.spec.node_name} lived, both rank {rank}"
                )
        self.lives[rank].append(pod.metadata.uid)
        self.attempts[rank].append(attempt_of(pod))
        self._alive[pod.metadata.uid] = pod

    @property
    def starts(self) -> dict[str, list[int]]:
        """By rank: the attempts that began, in order."""
        return dict(sorted(self.attempts.items()))


def rank_of(pod: Pod) -> str:
    """What tells the places of a gang apart; a launcher has none but its maker's name."""
    owner = next((owner.name for owner in pod.metadata.owner_references if owner.controller), "")
    return index_of(pod) or owner
