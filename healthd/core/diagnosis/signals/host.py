"""
Rules about the machine around the GPUs: memory, disks, file systems, heat, clock, and NVIDIA's helpers.

None of them takes a node out of service: a job may run for weeks with each of these faults. A disk or a file system
that is really gone fails the job itself or the kubelet, and other sources see that.
"""

from __future__ import annotations

from datetime import timedelta

from healthd.core.api.model import Blame
from healthd.core.diagnosis.signals.rule import AtLeast, Below, Changes, FellBelowBest, Grows, Is, Rule

_MINUTE = timedelta(minutes=1)
_TEN_MINUTES = timedelta(minutes=10)
_HOUR = timedelta(hours=1)
_DAY = timedelta(days=1)
_PAGES_A_GIB = 262_144
_YES = frozenset({"yes"})

_MEMORY = (
    Rule(
        name="memory-uncorrectable",
        reads="edac.uncorrected",
        test=Grows(1, _DAY),
        tier="serious",
        blame=Blame.NODE,
        summary="an uncorrectable error in the machine's memory",
        advice="Replace the module that is named.",
        clears_after=None,
        same_as="memory-uncorrectable",
        source="Linux Documentation/driver-api/edac.rst",
    ),
    Rule(
        name="memory-correctable",
        reads="edac.corrected",
        test=Grows(50, _DAY),
        tier="ticket",
        blame=Blame.NODE,
        summary="a module of the machine's memory corrects many errors",
        advice="Replace the module that is named when the node is next in maintenance.",
        clears_after=_DAY,
        same_as="memory-correctable",
        source="rasdaemon: its default threshold for a page or a row is 50 in 24 hours",
    ),
    Rule(
        name="memory-corrupted",
        reads="host.corrupted_memory_kb",
        test=AtLeast(1),
        tier="ticket",
        blame=Blame.NODE,
        summary="the kernel took memory out of use after uncorrectable errors",
        same_as="memory-uncorrectable",
        source="Linux Documentation/filesystems/proc.rst, HardwareCorrupted",
    ),
    Rule(
        name="memory-missing",
        reads="host.memory_kb",
        test=Below(other="host.memory_kb.before"),
        tier="ticket",
        blame=Blame.NODE,
        summary="the machine has less memory than before",
        advice="Look for a memory module that is no longer found, unless somebody made the machine smaller.",
        holds=_MINUTE,
        source="own choice: 2 % less than there ever was, which is less than one module",
    ),
    Rule(
        name="host-swaps",
        reads="host.swapped_pages",
        test=Grows(_PAGES_A_GIB, _TEN_MINUTES),
        tier="ticket",
        blame=Blame.APPLICATION,
        summary="the machine swaps, so that everything on it is slow",
        source="own choice: 1 GiB in pages of 4 KiB",
    ),
)

_PROCESSORS = (
    Rule(
        name="host-cpu-stolen",
        reads="host.stolen_percent",
        test=AtLeast(5),
        tier="record",
        blame=Blame.NODE,
        summary="the hypervisor gives processor time of this virtual machine to others, so that ranks on it are slow",
        advice="Move the virtual machine, or ask for one with processors of its own.",
        holds=_MINUTE,
        source="proc(5): steal; own choice: half of what makes a rank a straggler",
    ),
)

_KERNEL = tuple(
    Rule(
        name=f"host-{what.replace('_', '-')}",
        reads=f"host.taint_{what}",
        # A taint from before the agent's start may have been repaired without a reboot.
        test=Changes(1, _DAY),
        tier="suspect",
        blame=Blame.NODE,
        summary=f"the kernel reports {word} in this boot",
        advice="Read the kernel log, and reboot when the node is free.",
        clears_after=_HOUR,
        same_as=cause,
        source="Linux Documentation/admin-guide/tainted-kernels.rst",
    )
    for what, word, cause in (
        ("machine_check", "an uncorrected machine check", "memory-uncorrectable"),
        ("oops", "a fault of its own (oops)", "kernel-oops"),
        ("soft_lockup", "a processor that was stuck", "soft-lockup"),
    )
)

_CLOCK = (
    Rule(
        name="clock-free-running",
        reads="host.clock",
        test=Is(frozenset({"free-running"})),
        tier="record",
        blame=Blame.NODE,
        summary="the machine's clock is not synchronised",
        advice="Run chrony or another NTP or PTP client; logs and leases compare times of several machines.",
        holds=timedelta(minutes=30),
        source="adjtimex(2): STA_UNSYNC; some virtual machines are kept in step from outside, and never say so",
    ),
)

_DISKS = (
    Rule(
        name="disk-silent",
        reads="disk.silent_s",
        test=AtLeast(60),
        tier="serious",
        blame=Blame.DEVICE,
        summary="the disk answers no request",
        source="Linux block layer: requests time out after 30 s by default, and are tried again",
    ),
    Rule(
        name="disk-slow",
        reads="disk.await_ms",
        test=AtLeast(5000),
        tier="ticket",
        blame=Blame.DEVICE,
        summary="the disk takes seconds for each request",
        holds=_TEN_MINUTES,
        source="own choice: far beyond a full queue of a rotating disk, or of a volume at its quota",
    ),
    Rule(
        name="disk-read-only",
        reads="disk.writable",
        test=FellBelowBest(),
        tier="serious",
        blame=Blame.DEVICE,
        summary="the disk can no longer be written",
        advice="Replace the disk; NVMe disks that are worn out or lost their backup power refuse to be written.",
        source="NVM Express Base Specification, critical warning: media in read-only mode",
    ),
    Rule(
        name="filesystem-read-only",
        reads="filesystem.read_only",
        test=Is(_YES),
        tier="serious",
        blame=Blame.NODE,
        summary="a file system became read-only",
        advice="Look for errors of its disk in the kernel log; it needs a check before it is mounted again.",
        holds=_MINUTE,
        same_as="filesystem-read-only",
        source="ext4(5), errors=remount-ro; node-problem-detector's ReadonlyFilesystem",
    ),
    Rule(
        name="filesystem-full",
        reads="filesystem.free_bytes",
        test=Below(500_000_000),
        tier="ticket",
        blame=Blame.NODE,
        summary="a file system is full",
        holds=_MINUTE,
        source="gpud calls a root file system with less than 500 MB degraded",
    ),
    Rule(
        name="filesystem-out-of-inodes",
        reads="filesystem.free_inodes_percent",
        test=Below(1),
        tier="ticket",
        blame=Blame.NODE,
        summary="a file system can take no more files",
        holds=_MINUTE,
        source="own choice: the kubelet evicts pods below 5 %, so this is what it could not help",
    ),
)

_HEAT = (
    Rule(
        name="host-critical-heat",
        reads="thermal.margin_c",
        test=Below(1),
        tier="ticket",
        blame=Blame.DEVICE,
        summary="a part of the machine is as hot as it may be",
        advice="See to fans, airflow or coolant.",
        holds=_MINUTE,
        source="Linux Documentation/hwmon/sysfs-interface.rst, temp*_crit",
    ),
    Rule(
        name="host-fan-failed",
        reads="thermal.fan_fault",
        test=Is(_YES),
        tier="ticket",
        blame=Blame.NODE,
        summary="a fan failed",
        holds=_MINUTE,
        source="Linux Documentation/hwmon/sysfs-interface.rst, fan*_fault",
    ),
    Rule(
        name="host-cpu-throttled",
        reads="thermal.throttled_ms",
        test=Grows(60_000, _TEN_MINUTES),
        tier="ticket",
        blame=Blame.NODE,
        summary="a processor is slowed down because it is too hot",
        advice="See to fans, airflow or coolant.",
        same_as="cpu-throttled",
        source="own choice: a tenth of the time; Linux arch/x86/kernel/cpu: therm_throt.c",
    ),
)

_SERVICES = (
    Rule(
        name="persistenced-dead",
        reads="services.persistenced",
        test=Is(frozenset({"dead"})),
        tier="ticket",
        blame=Blame.NODE,
        summary="nvidia-persistenced no longer answers",
        advice="Start it again: without it the driver shuts down an idle GPU, and starting takes seconds.",
        holds=2 * _MINUTE,
        source="NVIDIA driver persistence documentation",
    ),
    Rule(
        name="fabric-manager-dead",
        reads="services.fabric_manager",
        test=Is(frozenset({"dead"})),
        tier="serious",
        blame=Blame.NODE,
        summary="the fabric manager no longer runs",
        advice="Start it again, and with it all GPUs' jobs: new jobs cannot use NVLink.",
        holds=2 * _MINUTE,
        same_as="fabric",
        source="NVIDIA Fabric Manager user guide; NVSentinel issue 891: an outage that went unnoticed for 20 days",
    ),
    Rule(
        name="peermem-absent",
        reads="services.peermem",
        test=Is(frozenset({"absent"})),
        tier="record",
        blame=Blame.NODE,
        summary="nvidia-peermem is not loaded, so GPUDirect RDMA works through DMA-BUF only",
        advice="Load it where the driver's closed modules or a kernel before 5.12 are in use.",
        holds=timedelta(minutes=30),
        source="NVIDIA GPUDirect RDMA documentation; NVIDIA GPU Operator, DMA-BUF",
    ),
)

RULES: tuple[Rule, ...] = (
    *_MEMORY,
    *_PROCESSORS,
    *_KERNEL,
    *_CLOCK,
    *_DISKS,
    *_HEAT,
    *_SERVICES,
)
