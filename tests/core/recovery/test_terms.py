"""A reason has the words of the world in which it is read."""

from __future__ import annotations

import re

import pytest

from healthd.core.api import ANNOTATION_RUN_OPTIONS, FencedPod, PodStatus
from healthd.core.config import HangPolicy
from healthd.core.diagnosis.rule_reference import kernel_rules
from healthd.core.diagnosis.tiers import ADVICE, all_tiers
from healthd.core.recovery.faults import find_faults
from healthd.core.recovery.fence import unproven
from healthd.core.recovery.gang import GangView
from healthd.core.recovery.terms import KUBERNETES, ONE_SERVER, Terms
from healthd.gangs.job import read_job
from tests.builders import a_job, a_node, a_pod
from tests.core.gangs import a_root
from tests.fakes import START

EITHER = pytest.mark.parametrize(
    ("terms", "name"), [(KUBERNETES, "llama-1-x2"), (ONE_SERVER, "rank 1")], ids=["kubernetes", "one server"]
)


@EITHER
def test_a_member_that_failed_is_named_as_people_there_know_it(terms: Terms, name: str) -> None:
    failed = a_pod("llama-1-x2", node="slot-1", index=1, status=PodStatus(phase="Failed"))
    view = GangView(root=a_root(terms=terms), pods=(failed,), nodes={"slot-1": a_node("slot-1")})

    (cause,) = find_faults(view, HangPolicy(), START)

    assert cause.message.startswith(f"{name} ")


@EITHER
def test_so_is_one_whose_end_is_not_proven(terms: Terms, name: str) -> None:
    pods = [FencedPod(name="llama-1-x2", uid="1", node="slot-1", index="1")]

    assert unproven(pods, terms) == [f"{name} on slot-1"]


def test_the_job_of_a_run_is_spoken_of_as_a_run() -> None:
    assert read_job(a_job("llama", annotations={ANNOTATION_RUN_OPTIONS: "--nproc 2"})).terms is ONE_SERVER
    assert read_job(a_job("llama")).terms is KUBERNETES


@pytest.mark.parametrize(
    ("finding", "of_one_server"),
    [
        ("0000:3b:00.0: the GPU is gone. Reboot the node.", "0000:3b:00.0: the GPU is gone. Reboot this server."),
        ("node: it hung. Reboot the node when it is idle.", "server: it hung. Reboot this server when it is idle."),
        ("Look at it: this node alone, or all of them?", "Look at it: this server alone, or all of them?"),
        ("the IMEX domain, which spans nodes", "the IMEX domain, which spans servers"),
        ("Tell the owner of the job; the device is fine.", "Look at the program; the device is fine."),
        ("Restart the job.", "Restart the run."),
    ],
)
def test_a_finding_is_reported_as_people_say_it_of_one_server(finding: str, of_one_server: str) -> None:
    assert ONE_SERVER.worded(finding) == of_one_server
    assert KUBERNETES.worded(finding) == finding


def test_no_advice_or_summary_of_a_rule_speaks_of_a_cluster_on_one_server() -> None:
    """A rule that is added later has the right words, too."""
    reported = [*ADVICE.values(), *(tier.advice for tier in all_tiers().values())]
    reported += [text for row in kernel_rules() for text in (row.what, row.advice)]
    of_a_cluster = re.compile(r"\b(pods?|kubelet|cordon\w*|namespaces?|jobs?|nodes?|gangs?)\b", re.IGNORECASE)

    assert [text for text in reported if of_a_cluster.search(ONE_SERVER.worded(text))] == []
