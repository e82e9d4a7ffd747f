"""Which pods are alive on a node, and which were and are no more."""

from __future__ import annotations

from datetime import timedelta

from healthd.core.api import PodEnd
from healthd.core.node.pod_liveness import KEPT_ENDS, KEPT_FOR, QUIET_FOR, ContainerTasks, PodLives, PodTasks
from tests.fakes import START

SANDBOX, RANK = 10, 20
SECOND = timedelta(seconds=1)
NOTHING_SEEN = PodLives()


def a_pod(uid: str = "a", *, sandbox: int = 1, rank: int = 0) -> PodTasks:
    """A pod by the tasks of its sandbox and of its one container."""
    containers = [ContainerTasks(RANK, rank), ContainerTasks(SANDBOX, sandbox)]
    return PodTasks(uid, sandbox + rank, tuple(container for container in containers if container.tasks))


RUNNING = a_pod(rank=40)
PAUSED = a_pod()


def lives(*looks: list[PodTasks], every: timedelta = SECOND, before: PodLives = NOTHING_SEEN) -> PodLives:
    """What is known after a look every so often, the first at START."""
    known = before
    for number, pods in enumerate(looks):
        known = known.update(pods, START + number * every)
    return known


def gone(known: PodLives) -> list[str]:
    """The uids of the pods that are proven gone."""
    return [end.uid for end in known.gone]


def test_a_pod_with_processes_is_alive() -> None:
    assert lives([RUNNING]).live == {"a"}


def test_a_pod_whose_control_group_went_away_is_gone_at_that_moment() -> None:
    assert lives([RUNNING], []).gone == (PodEnd(uid="a", at=START + SECOND),)


def test_a_pod_whose_last_process_ended_is_gone() -> None:
    assert gone(lives([RUNNING], [PodTasks("a", 0)])) == ["a"]


def test_a_pod_that_was_never_seen_alive_is_not_gone() -> None:
    assert lives([], [PodTasks("a", 0)], []) == NOTHING_SEEN


def test_a_pod_of_which_only_the_sandbox_is_left_is_gone_after_a_while() -> None:
    looks = [[RUNNING], [PAUSED], [PAUSED]]

    assert gone(lives(*looks, every=QUIET_FOR - SECOND)) == []
    assert gone(lives(*looks, every=QUIET_FOR)) == ["a"]


def test_a_container_that_is_started_again_soon_is_no_end() -> None:
    known = lives([RUNNING], [PAUSED], [RUNNING], [PAUSED], every=QUIET_FOR - SECOND)

    assert known.live == {"a"}
    assert gone(known) == []


def test_a_lone_idle_program_is_not_taken_for_a_sandbox() -> None:
    """The sandbox died first and its group went: what is left has one task, too."""
    left = PodTasks("a", 1, (ContainerTasks(RANK, 1),))

    assert lives([RUNNING], [left], [left], every=QUIET_FOR).live == {"a"}


def test_a_sandbox_that_was_never_seen_beside_a_container_is_not_known_as_one() -> None:
    assert lives([PAUSED], [PAUSED], every=QUIET_FOR).live == {"a"}


def test_an_agent_that_was_restarted_does_not_know_the_sandbox_and_waits() -> None:
    before = PodLives(live=frozenset({"a"}))

    assert lives([PAUSED], [PAUSED], every=QUIET_FOR, before=before).live == {"a"}


def test_what_an_earlier_life_saw_alive_and_is_not_there_is_gone() -> None:
    assert gone(lives([RUNNING], before=PodLives(live=frozenset({"a", "b"})))) == ["b"]


def test_a_container_of_several_tasks_is_never_the_sandbox() -> None:
    odd = PodTasks("a", 3, (ContainerTasks(SANDBOX, 2), ContainerTasks(RANK, 1)))
    left = PodTasks("a", 1, (ContainerTasks(SANDBOX, 1),))

    assert lives([odd], [left], [left], every=QUIET_FOR).live == {"a"}


def test_a_process_outside_every_container_keeps_the_pod_alive() -> None:
    stray = PodTasks("a", 2, (ContainerTasks(SANDBOX, 1),))

    assert lives([RUNNING], [stray], [stray], every=QUIET_FOR).live == {"a"}


def test_a_pod_that_is_alive_again_is_no_longer_gone() -> None:
    known = lives([RUNNING], [], [RUNNING])

    assert known.live == {"a"}
    assert gone(known) == []


def test_ends_are_kept_for_an_hour_and_dropped_with_the_next_one() -> None:
    old = lives([RUNNING], [])

    assert gone(old.update([RUNNING], START).update([], START + KEPT_FOR)) == ["a"]
    later = old.update([a_pod("b", rank=1)], START + KEPT_FOR).update([], START + 2 * KEPT_FOR)
    assert gone(later) == ["b"]


def test_only_the_newest_ends_are_kept() -> None:
    many = [a_pod(f"{number:03}", rank=1) for number in range(KEPT_ENDS + 5)]

    assert gone(lives(many, [])) == [pod.uid for pod in many[5:]]
