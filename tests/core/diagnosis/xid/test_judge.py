"""Judging one message."""

from __future__ import annotations

import pytest

from healthd.core.api.model import Blame, RepairAction, Severity
from healthd.core.diagnosis.judgement import Judgement
from healthd.core.diagnosis.klog import parse_message
from healthd.core.diagnosis.xid import judge

GPU = "0000:c1:00.0"


def judged(text: str) -> Judgement:
    message = parse_message(text)
    assert message is not None
    return judge(message)


def xid(code: int, text: str = "text") -> Judgement:
    return judged(f"NVRM: Xid (PCI:0000:c1:00): {code}, {text}")


@pytest.mark.parametrize(
    ("code", "severity", "action", "quarantines"),
    [
        (13, Severity.WARNING, RepairAction.CHECK_APP, False),
        (14, Severity.INFO, RepairAction.NONE, False),
        (31, Severity.WARNING, RepairAction.CHECK_APP, False),
        (43, Severity.WARNING, RepairAction.CHECK_APP, False),
        (45, Severity.WARNING, RepairAction.CHECK_APP, False),
        (48, Severity.ERROR, RepairAction.RESET_GPU, True),
        (51, Severity.WARNING, RepairAction.INSPECT, False),
        (54, Severity.FATAL, RepairAction.INSPECT, True),
        (63, Severity.WARNING, RepairAction.RESET_GPU, False),
        (64, Severity.ERROR, RepairAction.RESET_GPU, True),
        (65, Severity.INFO, RepairAction.NONE, False),
        (79, Severity.FATAL, RepairAction.REBOOT_NODE, True),
        (92, Severity.WARNING, RepairAction.INSPECT, False),
        (94, Severity.WARNING, RepairAction.RESTART_APP, False),
        (95, Severity.ERROR, RepairAction.RESET_GPU, True),
        (109, Severity.WARNING, RepairAction.CHECK_APP, False),
        (119, Severity.ERROR, RepairAction.RESET_GPU, True),
        (173, Severity.WARNING, RepairAction.INSPECT, False),
    ],
)
def test_a_code_is_judged_by_its_tier(code: int, severity: Severity, action: RepairAction, quarantines: bool) -> None:
    judgement = xid(code)

    assert (judgement.rule, judgement.device) == (f"xid-{code}", GPU)
    assert (judgement.severity, judgement.action, judgement.quarantines) == (severity, action, quarantines)


def test_a_code_from_the_future_is_shown_and_harmless() -> None:
    judgement = xid(999)

    assert judgement.rule == "xid-unknown-999"
    assert judgement.raises
    assert not judgement.quarantines
    assert judgement.blame is Blame.UNKNOWN


def test_the_message_says_what_where_and_what_to_do() -> None:
    assert xid(79).message == f"Xid 79 on {GPU}: GPU is gone from the PCIe bus. Reboot the node."


def test_the_slice_of_a_gpu_is_named() -> None:
    judgement = judged("NVRM: Xid (PCI:0000:c1:00 GPU-I:05): 31, pid=9, name=a, fault")

    assert judgement.device == GPU
    assert "(MIG instance 5)" in judgement.message


@pytest.mark.parametrize(
    ("number", "action", "quarantines"),
    [
        ("1", RepairAction.RESET_GPU, True),
        ("2", RepairAction.REBOOT_NODE, True),
        ("3", RepairAction.RESTART_APP, True),
        ("4", RepairAction.RESET_GPU, True),
        ("5", RepairAction.INSPECT, False),
        ("2a", RepairAction.INSPECT, False),
    ],
)
def test_the_drivers_advice_is_read_by_number_whatever_its_label(
    number: str, action: RepairAction, quarantines: bool
) -> None:
    judgement = xid(154, f"GPU recovery action changed from 0x0 (None) to 0x{number} (Some Label)")

    assert (judgement.rule, judgement.action, judgement.quarantines) == ("xid-154", action, quarantines)


def test_advice_to_do_nothing_clears_and_raises_nothing() -> None:
    judgement = xid(154, "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)")

    assert judgement.clears
    assert not judgement.raises


@pytest.mark.parametrize(
    ("detail", "rule", "severity", "quarantines"),
    [
        ("20034, Fatal, Link 12 LTSSM Fault Up", "sxid-20034", Severity.ERROR, True),
        ("20034, Non-fatal, Link 12 LTSSM Fault Up", "sxid-20034", Severity.INFO, False),
        ("10003, Fatal, host", "sxid-10003", Severity.FATAL, True),
        ("99999, Fatal, new", "sxid-unknown-99999", Severity.ERROR, True),
        ("99999, Non-fatal, new", "sxid-unknown-99999", Severity.WARNING, False),
    ],
)
def test_a_switch_error_counts_as_it_says_itself(detail: str, rule: str, severity: Severity, quarantines: bool) -> None:
    judgement = judged(f"nvidia-nvswitch2: SXid (PCI:0000:b8:00.0): {detail}")

    assert (judgement.rule, judgement.severity, judgement.quarantines) == (rule, severity, quarantines)


def test_the_further_lines_of_a_switch_error_are_no_errors_of_their_own() -> None:
    judgement = judged("nvidia-nvswitch2: SXid (PCI:0000:b8:00.0): 20034, Severity 1 Engine instance 12")

    assert not judgement.raises


@pytest.mark.parametrize(
    ("text", "rule", "quarantines"),
    [
        ("NVRM: GPU 0000:c1:00.0: GPU has fallen off the bus.", "gpu-lost", True),
        ("NVRM: GPU 0000:c1:00.0: RmInitAdapter failed! (0x25:0x65:1456)", "gpu-init-failed", False),
        ("nvidia 0000:c1:00.0: AER: can't recover (no error_detected callback)", "aer-fatal", False),
        ("mce: [Hardware Error]: CPU 9: Machine Check: 0 Bank 3: be00000000800400", "mce-fatal", False),
        ("mlx5_core 0000:c1:00.0: poll_health:819:(pid 0): device's health compromised", "mlx5-health", False),
    ],
)
def test_messages_without_a_code_are_judged_by_their_wording(text: str, rule: str, quarantines: bool) -> None:
    judgement = judged(text)

    assert judgement.raises
    assert (judgement.rule, judgement.quarantines) == (rule, quarantines)


@pytest.mark.parametrize(
    "text",
    [
        "NVRM: loading NVIDIA UNIX Open Kernel Module",
        "pcieport 0000:40:01.1: AER: Corrected error received: 0000:41:00.0",
        "mlx5_core 0000:c1:00.0: firmware version: 28.43",
        "mce: [Hardware Error]: Machine check events logged",
    ],
)
def test_chatter_and_corrected_errors_raise_nothing(text: str) -> None:
    judgement = judged(text)

    assert not judgement.raises
    assert judgement.severity is Severity.INFO


def test_what_has_no_address_is_about_the_node() -> None:
    assert judged("Out of memory: Killed process 42 (trainer) total-vm:1kB").device == "node"
