"""Reading survives anything, and never takes longer than the line is long."""

from __future__ import annotations

import random

import pytest

from healthd.core.diagnosis.klog import MessageKind, parse_line, parse_message
from healthd.core.diagnosis.klog.prefix import LONGEST_PREFIX
from healthd.core.diagnosis.xid import judge

LINES = [
    "3,12,99,-;NVRM: Xid (PCI:0000:c1:00 GPU-I:05): 31, pid=9, name=a b, MMU Fault",
    "[ 12.5] NVRM: Xid (PCI:0009:01:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 07 (0x021425c6 0x1)",
    "Apr  7 03:14:15 node17 kernel: nvidia-nvswitch5: SXid (PCI:0000:b8:00.0): 20009, Non-fatal, Link 12",
    "kern  :err   : 2026-04-07T03:14:15,004512+00:00 Out of memory: Killed process 42 (trainer) total-vm:1kB",
    "[Tue Apr  7 03:14:15 2026] mlx5_core 0000:9c:00.1: poll_health:819:(pid 0): device's health compromised",
    "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),task_memcg=/a,task=trainer,pid=4242,uid=0",
    "NVRM: Xid (PCI:0000:c1:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
]
DIRT = [
    "\x00",
    "\n",
    "\ufffd",
    "é",
    "\U0001f525",
    "(",
    ")",
    "[",
    "]",
    "<",
    ":",
    ",",
    " ",
    "0",
    "x",
    "\\x0a",
    "\x1b[31m",
    "٣",
]


FILLERS = [
    " ",
    "0",
    "a",
    "[",
    "<1>",
    "0000:",
    "name=",
    "Out of memory: ",
    "1:1:1 ",
    "\\x0a",
    "task=",
    "INFO: task a:1 ",
]
FILLERS += ["rcu_", "a[1]: segfault at ", " in lib", "thermal: ", "error, dev ", "0000:00:00.0 ", "traps: a[1] trap "]


def read_and_judge(line: str) -> None:
    kernel_line = parse_line(line)
    message = parse_message(kernel_line.text) if kernel_line else None
    if message is not None:
        judge(message)


@pytest.mark.parametrize("seed", range(8))
def test_damaged_lines_are_read_or_left_but_never_fail(seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(400):
        line = dice.choice(LINES)
        for _ in range(dice.randrange(1, 5)):
            at = dice.randrange(len(line) + 1)
            line = line[:at] + dice.choice(DIRT) * dice.choice([1, 1, 1, 50]) + line[at + dice.randrange(4) :]

        read_and_judge(line)


@pytest.mark.parametrize("line", LINES)
def test_lines_cut_anywhere_never_fail(line: str) -> None:
    for end in range(len(line)):
        read_and_judge(line[:end])


@pytest.mark.parametrize("filler", FILLERS)
def test_a_line_of_a_megabyte_is_read_at_once(filler: str) -> None:
    """With a grammar that backtracks this would not end."""
    body = filler * (1_000_000 // len(filler))

    for line in (
        body,
        f"NVRM: Xid (PCI:0000:c1:00): 31, pid=1, name={body}",
        f"[ 1.0] {body} kernel: x",
        f"oom-kill:constraint={body}",
        f"INFO: task {body}",
        f"a[1]: segfault at {body}",
        f"blk_update_request: {body}",
        f"thermal: {body}",
    ):
        read_and_judge(line)


def test_a_message_far_behind_other_text_is_not_a_message() -> None:
    assert parse_line("x" * LONGEST_PREFIX + " kernel: NVRM: Xid (PCI:0000:c1:00): 79, text") is not None
    assert parse_message("x" * LONGEST_PREFIX + " kernel: NVRM: Xid (PCI:0000:c1:00): 79, text") is None


def test_a_number_too_large_for_a_code_is_no_xid() -> None:
    message = parse_message("NVRM: Xid (PCI:0000:c1:00): 123456789012345678901234567890, text")

    assert message is None or message.kind is not MessageKind.XID
