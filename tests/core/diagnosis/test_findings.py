"""The ledger of findings: what raises, what repeats, what overrules, what clears."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from healthd.core.api.model import Blame, Finding, KernelRecord, RepairAction, Severity, Verdict
from healthd.core.config import JudgePolicy
from healthd.core.diagnosis.findings import Ledger
from tests.kernel_log import tags_of

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
GPU, OTHER = "0000:3b:00.0", "0000:86:00.0"
BOOT = "boot-a"


class Log:
    """A kernel log that a ledger reads as it is written: every line has the next sequence number."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.sequence = 100

    def says(
        self,
        text: str,
        *,
        at: float = 0,
        job: str = "",
        boot: str = BOOT,
        priority: int = 3,
        repaired: float | None = None,
    ) -> Log:
        self.sequence += 1
        self.reads(self.record(text, at=at, boot=boot, priority=priority), job=job, repaired=repaired)
        return self

    def record(self, text: str, *, at: float, boot: str = BOOT, priority: int = 3) -> KernelRecord:
        return KernelRecord(
            sequence=self.sequence, at=when(at), text=text, boot_id=boot, priority=priority, tags=tags_of(text)
        )

    def reads(
        self, record: KernelRecord, *, job: str = "", repaired: float | None = None, now: float | None = None
    ) -> None:
        repaired_at = None if repaired is None else when(repaired)
        seen_at = record.at if now is None else when(now)
        self.ledger = self.ledger.ingest_record(record, now=seen_at, job=job, repaired_at=repaired_at)

    def xid(
        self, code: int, *, on: str = GPU, text: str = "detail", at: float = 0, job: str = "", boot: str = BOOT
    ) -> Log:
        return self.says(f"NVRM: Xid (PCI:{on[:-2]}): {code}, {text}", at=at, job=job, boot=boot)

    def advice(self, number: int, *, at: float = 0) -> Log:
        return self.xid(154, text=f"GPU recovery action changed from 0x0 (None) to 0x{number:x} (Label)", at=at)

    def finding(self, rule: str, device: str = GPU) -> Finding:
        return self.ledger.entries[f"{device}/{rule}"]

    @property
    def rules(self) -> list[str]:
        return [finding.rule for finding in self.ledger.standing]


def when(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def test_a_lost_gpu_makes_the_node_unhealthy() -> None:
    log = Log().xid(79, text="GPU has fallen off the bus.")

    finding = log.finding("xid-79")
    verdict, message = log.ledger.verdict()
    assert (finding.action, finding.blame, finding.severity) == (RepairAction.REBOOT_NODE, Blame.DEVICE, Severity.FATAL)
    assert finding.quarantines
    assert verdict is Verdict.UNHEALTHY
    assert "xid-79" in message
    assert GPU in message


@pytest.mark.parametrize("code", [13, 31, 43, 45, 109])
def test_a_fault_of_the_application_leaves_the_node_healthy(code: int) -> None:
    log = Log().xid(code, job="train/a")

    finding = log.finding(f"xid-{code}")
    assert finding.blame is Blame.APPLICATION
    assert not finding.quarantines
    assert log.ledger.verdict()[0] is Verdict.HEALTHY


def test_a_healthy_verdict_denies_no_finding_that_stands() -> None:
    log = Log()
    before = log.ledger.verdict()

    assert before == (Verdict.HEALTHY, "No standing finding.")
    assert "xid-13" in log.xid(13, job="train/a").ledger.verdict()[1]


def test_an_unknown_code_degrades_and_never_quarantines() -> None:
    log = Log().xid(999)

    assert log.rules == ["xid-unknown-999"]
    assert not log.finding("xid-unknown-999").quarantines
    assert log.ledger.verdict()[0] is Verdict.DEGRADED


def test_a_repeat_counts_and_keeps_the_newest_evidence() -> None:
    log = Log()
    for second in range(8):
        log.xid(31, at=second * 60, text=f"fault {second}")

    finding = log.finding("xid-31")
    assert finding.count == 8
    assert [seen.text[-1] for seen in finding.evidence] == ["3", "4", "5", "6", "7"]
    assert (finding.raised_at, finding.last_at) == (when(0), when(420))


def test_the_same_record_never_counts_twice() -> None:
    log = Log().xid(31).xid(31, at=60)
    again = log.record("NVRM: Xid (PCI:0000:3b:00): 31, detail", at=60)

    log.reads(again)

    assert log.finding("xid-31").count == 2


def test_a_published_ledger_read_back_neither_forgets_nor_repeats() -> None:
    log = Log().xid(79)
    record = log.record("NVRM: Xid (PCI:0000:3b:00): 79, detail", at=0)
    log.ledger = Ledger.of(log.ledger.findings)

    log.reads(record)

    assert log.finding("xid-79").count == 1
    assert log.ledger.verdict()[0] is Verdict.UNHEALTHY


def test_a_line_that_user_space_wrote_is_no_evidence() -> None:
    log = Log().says("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.", priority=11)

    assert log.rules == []


def test_a_drill_may_trust_user_space() -> None:
    record = Log().record("NVRM: Xid (PCI:0000:3b:00): 79, drill", at=0, priority=12)

    ledger = Ledger().ingest_record(record, now=when(0), trust_user_space=True)

    assert [finding.rule for finding in ledger.standing] == ["xid-79"]


@pytest.mark.parametrize("advice_first", [True, False])
def test_the_drivers_own_advice_beats_the_table_in_either_order(advice_first: bool) -> None:
    log = Log()
    if advice_first:
        log.advice(2, at=0).xid(48, at=3)
    else:
        log.xid(48, at=0).advice(2, at=3)

    finding = log.finding("xid-48")
    assert (finding.action, finding.quarantines) == (RepairAction.REBOOT_NODE, True)
    assert "Reboot the node." in finding.message


def test_an_application_fault_turns_serious_when_the_driver_asks_for_a_reset() -> None:
    log = Log().xid(109).advice(1, at=2)

    finding = log.finding("xid-109")
    assert (finding.action, finding.quarantines) == (RepairAction.RESET_GPU, True)
    assert finding.blame is not Blame.APPLICATION


def test_a_pending_repair_waits_for_an_idle_moment_unless_the_driver_does_not() -> None:
    log = Log().xid(63)
    waiting = log.finding("xid-63")

    log.advice(1, at=1)

    assert (waiting.quarantines, log.finding("xid-63").quarantines) == (False, True)
    assert waiting.message.endswith("was recorded. Reset the GPU when it is idle.")
    assert log.finding("xid-63").message.endswith("was recorded. Reset the GPU.")


def test_advice_long_after_a_fault_is_not_about_it() -> None:
    log = Log().xid(109).advice(1, at=60)

    assert not log.finding("xid-109").quarantines
    assert log.finding("xid-154").quarantines


def test_advice_for_one_gpu_says_nothing_about_another() -> None:
    log = Log().xid(109, on=OTHER).advice(1, at=1)

    assert not log.finding("xid-109", OTHER).quarantines


def test_advice_to_do_nothing_clears_what_a_reset_clears() -> None:
    log = Log().xid(48).advice(1, at=1).advice(0, at=90)

    assert log.rules == []
    assert log.ledger.verdict()[0] is Verdict.HEALTHY


def test_advice_that_is_cut_is_shown_and_harmless() -> None:
    log = Log().says("NVRM: Xid (PCI:0000:3b:00): 154 (")

    assert log.rules == ["xid-154"]
    assert not log.finding("xid-154").quarantines


def test_symptoms_belong_to_the_fault_before_them() -> None:
    log = Log().xid(79).xid(45, at=1).xid(31, at=2)
    log.says("NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.", at=2)

    assert log.rules == ["xid-79"]
    assert log.finding("xid-79").count == 1
    assert len(log.finding("xid-79").evidence) == 4


def test_the_same_symptom_later_stands_alone() -> None:
    log = Log().xid(48).xid(31, at=60)

    assert log.rules == ["xid-48", "xid-31"]


def test_a_gpu_lost_in_three_records_is_one_finding_with_its_address() -> None:
    log = Log().says("NVRM: The NVIDIA GPU 0000:86:00.0")
    log.says("NVRM: (PCI ID: 10de:2330) installed in this system has")
    log.says("usb 1-1: new device found")
    log.says("NVRM: fallen off the bus and is not responding to commands.")

    assert log.ledger.standing[0].id == f"{OTHER}/gpu-lost"
    assert log.ledger.standing[0].quarantines


def test_one_fault_in_three_different_jobs_makes_the_gpu_suspect() -> None:
    log = Log()
    for hour, job in enumerate(["ns/a", "ns/b", "ns/c"]):
        log.xid(31, at=hour * 3600, job=job)

    finding = log.finding("xid-31")
    assert (finding.quarantines, finding.action, finding.blame) == (True, RepairAction.INSPECT, Blame.DEVICE)
    assert "ns/a, ns/b, ns/c" in finding.message


def test_one_job_may_fault_as_often_as_it_likes() -> None:
    log = Log()
    for minute in range(50):
        log.xid(13, at=minute * 60, job="ns/a")

    assert not log.finding("xid-13").quarantines


def test_a_burst_of_one_job_does_not_hide_the_jobs_before_it() -> None:
    log = Log().xid(13, job="ns/a").xid(13, at=60, job="ns/b")
    for line in range(30):
        log.xid(13, at=3600 + line, job="ns/c")

    assert log.finding("xid-13").quarantines


def test_jobs_that_fault_on_every_gpu_do_not_blame_one() -> None:
    log = Log()
    for hour, job in enumerate(["ns/a", "ns/b", "ns/c", "ns/d"]):
        log.xid(31, at=hour * 3600, job=job).xid(31, on=OTHER, at=hour * 3600 + 1, job=job)

    assert log.ledger.verdict()[0] is Verdict.HEALTHY


def test_killed_jobs_never_make_a_gpu_suspect() -> None:
    log = Log()
    for hour in range(6):
        log.xid(45, at=hour * 3600, job=f"ns/{hour}")

    assert log.ledger.verdict()[0] is Verdict.HEALTHY


def test_jobs_of_last_week_do_not_count() -> None:
    log = Log()
    for day, job in enumerate(["ns/a", "ns/b", "ns/c"]):
        log.xid(31, at=day * 23 * 3600, job=job)

    assert not log.finding("xid-31").quarantines


def test_a_repair_clears_everything_before_it() -> None:
    log = Log().xid(79).xid(54, on=OTHER, at=1)

    log.ledger = log.ledger.clear_by_repair(when(60))

    assert log.rules == []
    assert log.finding("xid-79").cleared_by == "repair"


def test_a_fault_after_the_repair_stands() -> None:
    log = Log().xid(79, at=100)

    log.ledger = log.ledger.clear_by_repair(when(60))

    assert log.rules == ["xid-79"]


def test_a_record_older_than_the_repair_never_raises_again() -> None:
    log = Log().xid(79)
    log.ledger = log.ledger.clear_by_repair(when(60))

    log.sequence += 1
    log.reads(log.record("NVRM: Xid (PCI:0000:3b:00): 48, detail", at=30), now=90)

    assert log.rules == []


def test_a_record_older_than_a_repair_that_had_nothing_to_clear_changes_nothing() -> None:
    log = Log().says("NVRM: Xid (PCI:0000:3b:00): 79, detail", at=30, repaired=60)

    assert log.rules == []


def test_a_fault_that_comes_back_after_its_remedy_asks_for_a_new_part() -> None:
    log = Log().xid(48)
    log.says(LOADED, at=600)

    log.xid(48, at=3600)

    finding = log.finding("xid-48")
    assert (finding.action, finding.quarantines) == (RepairAction.CONTACT_SUPPORT, True)
    assert "came back after a reset" in finding.message


def test_a_reboot_clears_older_boots_only() -> None:
    log = Log().xid(79, boot="boot-a").xid(54, boot="boot-a", at=1).xid(48, on=OTHER, boot="boot-b", at=100)

    log.ledger = log.ledger.clear_by_reboot("boot-b", when(200))

    assert log.rules == ["xid-54", "xid-48"]


def test_numbers_of_an_earlier_boot_hide_no_fault_of_this_one() -> None:
    log = Log().xid(64, boot="boot-a")
    log.sequence = 10
    log.xid(64, boot="boot-b", at=100)
    log.ledger = log.ledger.clear_by_repair(when(200))

    log.xid(64, boot="boot-b", at=300)

    assert log.finding("xid-64").cleared_at is None


def test_a_repair_clears_what_a_clock_stamped_that_was_ahead_until_it_was_set_right() -> None:
    log = Log().xid(79, at=10_000)

    log.ledger = log.ledger.clear_by_repair(when(300), noticed=when(301))

    assert log.finding("xid-79").cleared_by == "repair"


def test_a_fault_counts_though_a_clock_that_was_set_back_shows_less_than_at_the_repair() -> None:
    log = Log().xid(79)
    log.ledger = log.ledger.clear_by_repair(when(10_000))

    log.xid(79, at=100)

    assert log.finding("xid-79").cleared_at is None


def test_a_fault_of_the_new_boot_counts_though_the_reboot_was_noticed_later() -> None:
    log = Log().xid(79, boot="boot-a")
    log.ledger = log.ledger.clear_by_reboot("boot-b", when(200))

    log.xid(79, boot="boot-b", at=150)

    assert log.rules == ["xid-79"]


def test_an_application_fault_fades_within_a_day() -> None:
    log = Log().xid(31)

    assert [finding.rule for finding in log.ledger.decay(when(23 * 3600)).standing] == ["xid-31"]
    assert log.ledger.decay(when(24 * 3600)).standing == []


def test_a_quarantine_never_fades() -> None:
    log = Log().xid(79)

    assert log.ledger.decay(when(365 * 24 * 3600)).verdict()[0] is Verdict.UNHEALTHY


def test_a_cleared_finding_is_forgotten_after_a_day() -> None:
    ledger = Log().xid(79).ledger.clear_by_repair(when(60))

    assert len(ledger.decay(when(3600)).entries) == 1
    assert len(ledger.decay(when(25 * 3600)).entries) == 0


def test_lost_records_degrade_and_add_up() -> None:
    ledger = Ledger().lost(7, first=when(0), last=when(1), boot_id=BOOT).lost(5, first=when(60), last=when(61))

    finding = ledger.standing[0]
    assert (finding.id, finding.count, finding.quarantines) == ("node/kmsg-lost", 12, False)
    assert (finding.raised_at, finding.last_at) == (when(0), when(61))
    assert ledger.verdict()[0] is Verdict.DEGRADED


def test_a_dead_reader_makes_a_quiet_node_unknown_but_hides_nothing() -> None:
    assert Ledger().verdict({"kernel log": "no permission"})[0] is Verdict.UNKNOWN
    assert Log().xid(79).ledger.verdict({"kernel log": "no permission"})[0] is Verdict.UNHEALTHY


def test_chatter_of_drivers_raises_nothing() -> None:
    log = (
        Log()
        .says("NVRM: loading NVIDIA UNIX Open Kernel Module")
        .says("mlx5_core 0000:5e:00.0: firmware version: 28.39")
    )

    assert log.ledger.entries == {}


def test_a_repeat_that_is_worse_takes_over() -> None:
    log = Log().says("NVRM: Xid (PCI:0000:3b:00): 144, SAW_MVB Nonfatal XC0 i0 Link 02 (0x21 0x4)")
    mild = log.finding("xid-144")

    log.says("NVRM: Xid (PCI:0000:3b:00): 144, SAW_MVB Fatal XC0 i0 Link 02 (0x21 0x2)", at=60)

    assert not mild.quarantines
    assert (log.finding("xid-144").quarantines, log.finding("xid-144").count) == (True, 2)


def test_a_symptom_read_again_is_not_entered_again() -> None:
    log = Log().xid(79).xid(45, at=1)
    again = log.record("NVRM: Xid (PCI:0000:3b:00): 45, detail", at=1)

    log.reads(again)

    assert len(log.finding("xid-79").evidence) == 2


def test_advice_that_takes_nothing_out_of_service_does_not_soften_a_fault() -> None:
    log = Log().xid(79).advice(5, at=1)

    assert log.finding("xid-79").action is RepairAction.REBOOT_NODE


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x25:0x65:1456)", "gpu-init-failed"),
        ("pcieport 0000:3b:00.0: AER: Uncorrected (Fatal) error received: 0000:3c:00.0", "aer-fatal"),
    ],
)
def test_a_suspicion_that_is_not_confirmed_fades(text: str, rule: str) -> None:
    log = Log().says(text)

    assert log.rules == [rule]
    assert log.ledger.decay(when(24 * 3600)).standing == []


def test_lost_records_are_held_against_a_node_for_an_hour() -> None:
    ledger = Ledger().lost(3, first=when(0), last=when(0))

    assert ledger.decay(when(3599)).verdict()[0] is Verdict.DEGRADED
    assert ledger.decay(when(3600)).verdict()[0] is Verdict.HEALTHY


def test_how_many_jobs_turn_suspicion_on_the_gpu_is_the_operators_choice() -> None:
    """Two jobs are enough where the operator says so, and not by default."""
    strict = JudgePolicy(app_distinct_jobs=2)

    assert not quarantines_after_jobs("a", "b", policy=JudgePolicy())
    assert quarantines_after_jobs("a", "b", policy=strict)


def quarantines_after_jobs(*jobs: str, policy: JudgePolicy) -> bool:
    ledger = Ledger(policy=policy)
    for number, job in enumerate(jobs):
        at = START + timedelta(hours=number)
        text = "NVRM: Xid (PCI:0000:3b:00): 13, pid=7, name=python, Graphics SM Warp Exception"
        record = KernelRecord(sequence=number, at=at, text=text, boot_id="boot-1")
        ledger = ledger.ingest_record(record, now=at, job=job)
    return any(finding.quarantines for finding in ledger.standing)


def test_a_source_that_numbers_otherwise_hides_no_fault() -> None:
    """After a repair the journal's large numbers do not make the kernel's own small ones look old."""
    text = "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."
    reported = KernelRecord(sequence=10**12, at=START, text=text, boot_id="boot-1", source="journal")
    later = START + timedelta(hours=1)
    again = KernelRecord(sequence=500, at=later, text=text, boot_id="boot-1", source="kmsg")

    repaired = Ledger().ingest_record(reported, now=START).clear_by_repair(START + timedelta(minutes=1))

    assert repaired.standing == []
    assert [f.rule for f in repaired.ingest_record(again, now=later).standing] == ["xid-79"]


CORRECTED = "nvidia 0000:3b:00.0: PCIe Bus Error: severity=Corrected, type=Data Link Layer, (Transmitter ID)"


def test_corrected_errors_are_a_finding_only_when_they_come_in_numbers() -> None:
    log = Log()
    for second in range(29):
        log.says(CORRECTED, at=second)
    few = log.rules
    log.says(CORRECTED, at=29)

    assert (few, log.rules) == ([], ["aer-storm"])
    assert log.ledger.verdict()[0] is Verdict.DEGRADED


def test_corrected_errors_now_and_then_stay_unsaid() -> None:
    log = Log()
    for hour in range(60):
        log.says(CORRECTED, at=hour * 3600)

    assert log.rules == []


def test_errors_of_different_devices_are_not_counted_together() -> None:
    log = Log()
    for second in range(40):
        log.says(CORRECTED if second % 2 else CORRECTED.replace("3b", "86"), at=second)

    assert log.rules == []


def test_a_storm_that_goes_on_repeats_its_finding() -> None:
    log = Log()
    for second in range(40):
        log.says(CORRECTED, at=second)

    assert log.finding("aer-storm").count == 11


def test_a_storm_that_was_repaired_is_counted_anew() -> None:
    log = Log()
    for second in range(30):
        log.says(CORRECTED, at=second)
    log.ledger = log.ledger.clear_by_repair(when(30))
    log.says(CORRECTED, at=40)

    assert log.rules == []


def test_a_message_that_all_is_well_ends_the_finding() -> None:
    log = Log().says("nfs: server nas7 not responding, still trying")
    trouble = log.rules
    log.says("nfs: server nas7 OK", at=9)

    assert (trouble, log.rules) == (["nfs-not-responding"], [])
    assert log.finding("nfs-not-responding", "node").cleared_by == "recovered"


def test_good_news_from_before_the_fault_ends_nothing() -> None:
    log = Log().says("nfs: server nas7 not responding, still trying", at=9)
    log.says("nfs: server nas7 OK", at=3)

    assert log.rules == ["nfs-not-responding"]


def test_good_news_of_one_device_says_nothing_about_another() -> None:
    log = Log().says("mlx5_core 0000:9c:00.0 ens1: Link down").says("mlx5_core 0000:9c:00.1 ens2: Link up", at=1)

    assert log.rules == ["mlx5-link-down"]


LOAD_BEGINS = "nvidia-nvlink: Nvlink Core is being initialized, major device number 510"
LOADED = "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.124.06  Release Build  (root@host)  Wed Feb 26"


def loaded(log: Log, *, at: float) -> Log:
    """The driver is loaded, which takes two seconds."""
    return log.says(LOAD_BEGINS, at=at).says(LOADED, at=at + 2)


def test_a_load_of_the_driver_puts_right_what_a_reset_does() -> None:
    log = loaded(Log().xid(119, at=0), at=100)

    assert log.ledger.standing == []
    assert (log.finding("xid-119").cleared_by, log.finding("xid-119").cleared_at) == ("reset", when(100))


@pytest.mark.parametrize("text", [LOADED, "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19"])
def test_a_load_whose_beginning_is_not_reported_is_given_a_minute(text: str) -> None:
    assert Log().xid(119, at=0).says(text, at=30).rules == ["xid-119"]
    assert Log().xid(119, at=0).says(text, at=90).rules == []


def test_a_load_that_only_began_puts_nothing_right() -> None:
    assert Log().xid(119).says(LOAD_BEGINS, at=100).rules == ["xid-119"]


def test_what_the_driver_says_while_it_is_loaded_stands() -> None:
    log = Log().says(LOAD_BEGINS, at=100).xid(119, at=101).says(LOADED, at=102)

    assert log.rules == ["xid-119"]


def test_a_load_puts_no_broken_part_right_and_forgives_no_job() -> None:
    log = loaded(Log().xid(54).xid(31, job="train/a", at=20), at=100)

    assert set(log.rules) == {"xid-54", "xid-31"}


def test_a_load_of_the_driver_says_nothing_about_other_devices() -> None:
    log = loaded(Log().says("mlx5_core 0000:5e:00.0: poll_health:825: Fatal error 1 detected"), at=100)

    assert len(log.ledger.standing) == 1


def test_a_gpu_that_fell_off_the_bus_is_back_when_it_answers_after_a_load() -> None:
    log = loaded(Log().xid(79), at=100)

    assert log.ledger.clear_by_reload({}).standing != []
    assert log.ledger.clear_by_reload({GPU: when(101)}).standing != []
    assert log.ledger.clear_by_reload({OTHER: when(200)}).standing != []
    assert log.ledger.clear_by_reload({GPU: when(200)}).standing == []


def test_an_answer_alone_puts_nothing_right() -> None:
    assert Log().xid(79).ledger.clear_by_reload({GPU: when(200)}).standing != []


def test_a_fault_that_comes_back_after_a_load_is_for_support() -> None:
    log = loaded(Log().xid(119), at=100).xid(119, at=200)

    assert log.finding("xid-119").action is RepairAction.CONTACT_SUPPORT


def test_what_another_witness_saw_too_is_not_over_by_a_load() -> None:
    log = Log().xid(119)
    seen = replace(log.finding("xid-119"), also=["nvml-gsp-timeout"])
    log.ledger = Ledger.of([seen])

    assert loaded(log, at=100).rules == ["xid-119"]
