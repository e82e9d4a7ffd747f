"""What one sample says, and what a second one makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from healthd.checks.judging import Judged, OfflineJudge
from healthd.core.api.model import KernelRecord, Verdict
from healthd.core.diagnosis.findings import BY_DEFAULT
from healthd.core.diagnosis.readings import Reading, Sample
from tests.checks.contexts import GPU0, NOW

FALLEN = KernelRecord(sequence=7, at=NOW, text="NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.")


def a_sample(state: str = "ok", *, after: float = 0, width: int = 16, trouble: str = "") -> Sample:
    readings = [Reading(GPU0, "nvml.state", state), Reading(GPU0, "nvml.pcie.width", width)]
    at = NOW + timedelta(seconds=after)
    return Sample(source="nvml", at=at, readings=[] if trouble else readings, trouble=trouble)


def judged(
    onlooker: OfflineJudge, sample: Sample, records: Sequence[KernelRecord] = (), *, log_trouble: str = ""
) -> Judged:
    return onlooker.judge([sample], records, now=sample.at, log_trouble=log_trouble)


def an_judge() -> OfflineJudge:
    return OfflineJudge(BY_DEFAULT, "boot-1")


def test_what_is_bad_now_is_no_finding_yet_and_counts_as_one() -> None:
    reported = judged(an_judge(), a_sample("lost"))

    assert (reported.findings, reported.verdict) == ([], Verdict.UNHEALTHY)
    assert [(seen.finding.rule, seen.holds_s) for seen in reported.seen_now] == [("nvml-gpu-lost", 30)]


def test_what_holds_becomes_a_finding() -> None:
    onlooker = an_judge()
    judged(onlooker, a_sample("lost"))

    reported = judged(onlooker, a_sample("lost", after=31))

    assert ([finding.rule for finding in reported.findings], reported.seen_now) == (["nvml-gpu-lost"], [])


def test_what_passes_is_forgotten() -> None:
    onlooker = an_judge()
    judged(onlooker, a_sample("lost"))

    assert judged(onlooker, a_sample(after=5)).verdict is Verdict.HEALTHY


def test_a_kernel_log_that_is_read_again_counts_once() -> None:
    onlooker = an_judge()
    judged(onlooker, a_sample(), [FALLEN])

    reported = judged(onlooker, a_sample(after=5), [FALLEN])

    assert [(finding.rule, finding.count) for finding in reported.findings] == [("xid-79", 1)]


def test_a_second_witness_of_what_the_kernel_reported_is_no_other_fault() -> None:
    reported = judged(an_judge(), a_sample("lost"), [FALLEN])

    assert ([finding.rule for finding in reported.findings], reported.seen_now) == (["xid-79"], [])


def test_without_nvml_no_one_can_say_that_gpus_are_well() -> None:
    reported = judged(an_judge(), a_sample(trouble="it did not answer within 15 s"))

    assert (reported.verdict, reported.message) == (
        Verdict.UNKNOWN,
        "nvml cannot be read: it did not answer within 15 s.",
    )


def test_what_is_certain_is_not_made_unknown_by_what_cannot_be_read() -> None:
    assert judged(an_judge(), a_sample(trouble="it hangs"), [FALLEN]).verdict is Verdict.UNHEALTHY


def test_without_the_kernel_log_it_is_unknown() -> None:
    assert judged(an_judge(), a_sample(), log_trouble="no permission").verdict is Verdict.UNKNOWN
