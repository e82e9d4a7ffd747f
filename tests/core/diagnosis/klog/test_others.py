"""Messages of the machine and of its fabrics."""

from __future__ import annotations

import pytest

from healthd.core.diagnosis.klog import MessageKind, parse_message
from tests.core.diagnosis.klog.reading import read
from tests.core.diagnosis.xid import drivers


@pytest.mark.parametrize(
    ("text", "fatal"),
    [
        ("pcieport 0000:40:01.1: AER: Corrected error received: 0000:41:00.0", False),
        ("pcieport 0000:40:01.1: AER: Multiple Uncorrected (Non-Fatal) error received: 0000:41:00.0", False),
        ("pcieport 0000:40:01.1: AER: Uncorrected (Fatal) error received: id=0100", True),
        ("nvme 0000:40:01.1: PCIe Bus Error: severity=Corrected, type=Data Link Layer, (Transmitter ID)", False),
        ("nvidia 0000:40:01.1: AER: can't recover (no error_detected callback)", True),
        ("mlx5_core 0000:40:01.1:   device [15b3:1021] error status/mask=00001000/00000000", None),
        ("mlx5_core 0000:40:01.1:    [12] Timeout", None),
        ("pcieport 0000:40:01.1:    [ 6] BadTLP                (First)", None),
        ("pcieport 0000:40:01.1:   TLP Header: 00000000 00000000 00000000 00000000", None),
        ("pcieport 0000:40:01.1: DPC: containment event, status:0x1f01 source:0x0000", None),
        ("pcieport 0000:40:01.1: EDR: EDR event received", None),
        ("0000:40:01.1: AER: Corrected error received", False),
        ("dpc 0000:40:01.1:pcie010: DPC containment event, status:0x1f00 source:0x0000", None),
        ("pcieport 0000:40:01.1: +------ PCI-Express Device Error ------+", None),
    ],
)
def test_pcie_errors_name_the_first_device(text: str, fatal: bool | None) -> None:
    message = read(text)

    assert (message.kind, message.pci, message.fatal) == (MessageKind.AER, "0000:40:01.1", fatal)


@pytest.mark.parametrize(
    ("text", "fatal"),
    [
        ("mce: [Hardware Error]: CPU 9: Machine Check: 0 Bank 3: be00000000800400", True),
        ("mce: [Hardware Error]: CPU 9: Machine Check: 0 Bank 3: 9c00000000800400", False),
        ("mce: [Hardware Error]: Machine check events logged", None),
        ("{3}[Hardware Error]: event severity: recoverable", None),
        ("EDAC MC1: 1 UE memory read error on CPU_SrcID#0", True),
        ("EDAC MC1: 1 CE memory read error on CPU_SrcID#0", None),
        ("CMCI storm detected: switching to poll mode", None),
        ("Memory failure: 0x1f00: recovery action for dirty LRU page: Recovered", None),
        ("EDAC sbridge MC1: HANDLING MCE MEMORY ERROR", None),
        ("EDAC skx MC4: TSC 0x0", None),
        ("sbridge: HANDLING MCE MEMORY ERROR", None),
        ("CPU 9: Machine Check Exception:                4 Bank 3: b200000000070f0f", True),
        ("HARDWARE ERROR. This is *NOT* a software problem!", None),
        ("BERT: Error records from previous boot:", None),
        ("GHES: HEST is not enabled!", None),
        ("Kernel panic - not syncing: Fatal machine check", True),
        ("Kernel panic - not syncing: Fatal hardware error!", True),
    ],
)
def test_machine_checks_say_whether_the_hardware_corrected_them(text: str, fatal: bool | None) -> None:
    message = read(text)

    assert (message.kind, message.fatal) == (MessageKind.MCE, fatal)


@pytest.mark.parametrize(
    ("text", "pid", "process"),
    [
        ("trainer invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0", None, "trainer"),
        ("io worker invoked oom-killer: gfp_mask=0xcc0", None, "io worker"),
        ("Out of memory: Killed process 4242 (trainer) total-vm:1kB, anon-rss:1kB", 4242, "trainer"),
        ("Out of memory: Kill process 4242 (trainer) score 905 or sacrifice child", 4242, "trainer"),
        ("Out of memory: Killed process 4242, UID 1000, (trainer).", 4242, "trainer"),
        ("Memory cgroup out of memory: Killed process 4242 ((sd-pam)) total-vm:1kB", 4242, "(sd-pam)"),
        ("Killed process 4242 (trainer)", 4242, "trainer"),
        ("Killed process 4242, UID 498, (trainer) total-vm:1kB, anon-rss:1kB", 4242, "trainer"),
        ("Memory cgroup out of memory: Killed process 4242", 4242, None),
        ("Kill process 4242 (trainer) sharing same memory", 4242, "trainer"),
        ("tmux: server invoked oom-killer: gfp_mask=0xcc0", None, "tmux: server"),
        ("kworker/u4:5 invoked oom-killer:", None, "kworker/u4:5"),
        ("oom-killer: gfp_mask=0xd0", None, None),
        ("Out of memory and no killable processes...", None, None),
        (
            "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),task_memcg=/a,task=trainer,pid=4242,uid=0",
            4242,
            "trainer",
        ),
        ("oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null)", None, None),
        ("oom_reaper: reaped process 4242 (trainer), now anon-rss:0kB", None, None),
        ("Tasks in /kubepods/pod1 are going to be killed due to memory.oom.group set", None, None),
    ],
)
def test_memory_exhausted_names_who_asked_or_who_died(text: str, pid: int | None, process: str | None) -> None:
    message = read(text)

    assert (message.kind, message.pid, message.process) == (MessageKind.OOM, pid, process)


@pytest.mark.parametrize(
    ("text", "kind", "pci"),
    [
        (
            "mlx5_core 0000:9c:00.1: poll_health:819:(pid 0): device's health compromised",
            MessageKind.MLX5,
            "0000:9c:00.1",
        ),
        ("mlx5_core 0000:9c:00.1 ens1f1np1: Link down", MessageKind.MLX5, "0000:9c:00.1"),
        ("mlx5_core: probe of the device failed", MessageKind.MLX5, None),
        ("mlx5_cmd_check:810:(pid 77): MODIFY_QP(0x502) failed", MessageKind.MLX5, None),
        ("NETDEV WATCHDOG: ens1f1np1 (mlx5_core): transmit queue 3 timed out", MessageKind.MLX5, None),
        ("efa 0000:9c:00.1 rdmap5s0: Failed to process command CREATE_QP", MessageKind.EFA, "0000:9c:00.1"),
        ("efa 0000:9c:00.1: Setup irq:33", MessageKind.EFA, "0000:9c:00.1"),
        ("infiniband mlx5_4: dump error cqe", MessageKind.IB, None),
        ("ib0: multicast join failed, status -110", MessageKind.IB, None),
        ("ibp65s0: multicast join failed, status -110", MessageKind.IB, None),
        ("hfi1 0000:9c:00.0: hfi1_0: Link up", MessageKind.IB, "0000:9c:00.0"),
        ("bnxt_en 0000:9c:00.1 bnxt_re1: Failed to modify HW QP", MessageKind.IB, "0000:9c:00.1"),
        ("bnxt_en 0000:9c:00.1: QPLIB: cmdq[0x7]=0x3 status 0x5", MessageKind.IB, "0000:9c:00.1"),
        ("irdma: probe failed", MessageKind.IB, None),
    ],
)
def test_lines_of_the_fabrics_are_distinguished(text: str, kind: MessageKind, pci: str | None) -> None:
    message = read(text)

    assert (message.kind, message.pci) == (kind, pci)


@pytest.mark.parametrize(
    "text",
    [
        *drivers.UNREAD,
        "",
        "usb 1-1: new high-speed USB device",
        "mlx4_core 0000:9c:00.0: command failed",
        "trainer[77]: segfault at 0 ip 0 sp 0 error 4 in libcuda.so",
        'audit: type=1400 apparmor="STATUS" name="nvidia_modprobe"',
        " SUBSYSTEM=pci",
        "pcieport 0000:40:01.1: irq 42 for MSI/MSI-X",
        "Disabling lock debugging due to kernel taint",
        "server not responding, still trying",
        "INFO: lockdep is turned off.",
        "INFO: task list follows",
        "rcu: Hierarchical RCU implementation.",
        "watchdog: Delayed init of the lockup detector failed: -19",
        "NMI watchdog: Enabled. Permanently consumes one hw-PMU counter.",
        "NMI backtrace for cpu 3",
        "WARNING: CPU: 3 PID: 77 at kernel/sched/core.c:1192 resched_cpu+0x1/0x2",
        "trainer[77]: segfault at 0 ip 00007f sp 00007f error 4 in python3.11[400000+2000]",
        "trainer[77]: segfault",
        "CPU3: Thread 5, socket 0",
        "thermal_sys: Registered thermal governor 'step_wise'",
        "nvmet: adding nsid 1 to subsystem x",
        "I/O scheduler mq-deadline registered",
        "critical thinking needed",
        "XFSX (sda1): Mounting",
        "nfsd: last server has exited",
        "sd card inserted",
        "Out of memory! avail: 138 MiB < min: 786 MiB",
        "Out of memory error in the client",
        "[03:14:15] [ERROR] app: trainer invoked oom-killer: gfp_mask=0xcc0",
        "node17 kubelet[811]: trainer invoked oom-killer: gfp_mask=0xcc0",
    ],
)
def test_everything_else_is_noise(text: str) -> None:
    assert parse_message(text) is None
