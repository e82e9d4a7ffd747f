"""The record of who lived when, by which the scenarios are judged."""

from __future__ import annotations

from healthd.core.api import ANNOTATION_ATTEMPT, Pod, PodStatus
from tests.builders import a_pod
from tests.kubernetes.rank_lifetimes import Ranks


def of(uid: str, phase: str = "Running", rank: int = 0, node: str = "n1", attempt: int = 0) -> Pod:
    status = PodStatus(phase=phase)
    return a_pod(
        f"llama-{uid}", uid=uid, index=rank, node=node, status=status, annotations={ANNOTATION_ATTEMPT: str(attempt)}
    )


def test_rank_that_ends_before_the_next_one_begins_overlaps_nothing() -> None:
    ranks = Ranks()
    for pod in (of("a"), of("a", "Failed"), of("b", attempt=1)):
        ranks.reported(pod)

    assert ranks.overlaps == []
    assert ranks.starts == {"0": [0, 1]}


def test_two_pods_of_a_rank_that_live_at_the_same_time_are_seen() -> None:
    ranks = Ranks()
    for pod in (of("a"), of("b", "Pending", node="n2")):
        ranks.reported(pod)

    assert ranks.overlaps == ["llama-b on n2 began while llama-a on n1 lived, both rank 0"]


def test_pod_that_waits_for_a_node_has_not_begun() -> None:
    ranks = Ranks()
    for pod in (of("a"), of("b", "Pending", node="")):
        ranks.reported(pod)

    assert (ranks.overlaps, ranks.starts) == ([], {"0": [0]})


def test_two_ranks_are_no_overlap() -> None:
    ranks = Ranks()
    for pod in (of("a", rank=0), of("b", rank=1)):
        ranks.reported(pod)

    assert ranks.overlaps == []


def test_pod_whose_object_goes_while_it_lives_has_vanished() -> None:
    ranks = Ranks()
    ranks.reported(of("a"))
    ranks.reported(of("b", "Failed", rank=1))

    ranks.gone("llama-a")
    ranks.gone("llama-b")

    assert ranks.vanished == ["llama-a"]
