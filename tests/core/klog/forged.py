"""
What the kernel prints with text of a process at its beginning, and what a process might choose to be taken for a fault.

Formats: %s[%d] and its like in the kernel's sources, see `healthd.core.klog.process`. `{comm}` has 15 bytes at most,
`{file}` 255.
"""

from __future__ import annotations

FORMATS = [
    "{comm}[23056]: segfault at 0 ip 0000000000401136 sp 00007ffd sp error 4 in {file}[401000+1000]",
    "{comm}[23056]: segfault at 0 ip 0 sp 0 error 14 likely on CPU 3 (core 3, socket 0)",
    "{comm}[23056]: segfault at 0 ip 0 sp 0 error 4 in {file}[1136,401000+1000] likely on CPU 3 (core 3, socket 0)",
    "{comm}[23056]: segfault (11) at 0 nip 10000588 lr 10000580 code 1 in {file}[10000000+10000]",
    "{comm}[23056]: unhandled signal 11 code 0x1 at 0x0 in {file}[10000+1000]",
    "{comm}[23056]: unhandled exception: SP Alignment, ESR 0x9a000000, in {file}[400000+1000]",
    "{comm}[23056]: unhandled translation fault (11) at 0x00000000, esr 0x92000006, in {file}[400000+1000]",
    "{comm}[23056] bad frame in rt_sigreturn frame:00000000f4d ip:401136 sp:7ffd orax:ffff in {file}[401000+1000]",
    "{comm}[23056] vsyscall read attempt denied -- look up the vsyscall kernel parameter ip:401136 cs:33 sp:7ffd",
    "{comm}[23056] bad frame in setup_rt_frame: 00000000",
    "{comm}[23056]: memfd_create() called without MFD_EXEC or MFD_NOEXEC_SEAL set",
    "{comm}[23056]: undefined instruction: pc=0000",
    "traps: {comm}[23056] general protection fault ip:401136 sp:7ffd error:0 in {file}[401000+1000]",
    "traps: {comm}[23056] trap int3 ip:401136 sp:0 error:0 in {file}[401000+1000]",
    "traps: {comm}[1] trap int3 ip:1 sp:0 error:0 in {file}[401000+1000]",
    "umip: {comm}[23056] ip:401136 sp:7ffd: SGDT instruction cannot be used by applications.",
    "x86/split lock detection: #AC: {comm}/23056 took a split_lock trap at address: 0x401136",
    "{comm}/23056: potentially unexpected fatal signal 11.",
    "{comm}: potentially unexpected fatal signal 11.",
    "{file}: {comm}: potentially unexpected fatal signal 11.",
    "{comm}: page allocation failure: order:4, mode:0x40dc0(GFP_KERNEL|__GFP_COMP), nodemask=(null),cpuset={file}",
    "{comm}: page allocation stalls for 10012ms, order:0, mode:0x14200ca(GFP_HIGHUSER_MOVABLE), nodemask=(null)",
    "{comm}: vmalloc error: size 8192, page order 0, failed to allocate pages, mode:0xcc2, nodemask=(null)",
    "{comm}: vmalloc size: 8192, allocation failure: 0 bytes, mode:0xcc2, nodemask=(null)",
    "{comm} invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
    "{comm} (23056): drop_caches: 3",
    "{comm} (23056): Using mlock ulimits for SHM_HUGETLB is obsolete",
    "{comm} (23056) used greatest stack depth: 11000 bytes left",
    "{comm}(23056): WRITE block 8 on dm-0 (8 sectors)",
    "{comm}(23056): dirtied inode 77 ({file}) on dm-0",
    "{comm}:23056 map pfn expected mapping type uncached-minus for [mem 0xf-0xf], got write-back",
    "{comm}: sending ioctl 5310 to a partition!",
    "{comm} uses obsolete (PF_INET,SOCK_PACKET)",
    "{comm} forgot to set AF_INET in raw sendmsg. Fix it!",
    "{comm:15} D    0 23056      1 0x00000000",
    "{comm:15} R  running task        0 23056      1 0x00000000",
    "{file}IN=eth0 OUT= MAC=02:00 SRC=10.0.0.7 DST=10.0.0.8 LEN=40 PROTO=TCP",
    "process '{file}' started with executable stack",
    "netlink: 4 bytes leftover after parsing attributes in process `{comm}'.",
    "Out of memory: Killed process 23056 ({comm}) total-vm:1kB, anon-rss:1kB, file-rss:0kB, shmem-rss:0kB, UID:1000",
    "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset={file},task={comm},pid=23056,uid=1000",
    'ptrace attach of "{comm}"[23056] was attempted by "{comm}"[1]',
    "warning: `{comm}' uses 32-bit capabilities (legacy support in use)",
    "coredump: 23056({comm}): over coredump resource limit, skipping core dump",
]
"""Formats with what a process chose at their beginning, and some that quote it where it does no harm."""

WIRES = [
    "{wire}: renamed from {other}",
    "{wire}: entered promiscuous mode",
    "{wire}: port 1({other}) entered disabled state",
    "{wire}: received packet on {other} with own address as source address (addr:02:00, vlan:0)",
    "{wire}: selects TX queue 7, but real number of TX queues is 1",
    "{wire}: Caught tx_queue_len zero misconfig",
    "{wire}: (slave {other}): link status definitely down, disabling slave",
]
"""About interfaces without a device: any process may make and name some in a user namespace. No blank, `:` or `/`."""

QUOTES = [
    ("INFO: task {comm}:77 blocked for more than 120 seconds.", "hung-task"),
    ("watchdog: BUG: soft lockup - CPU#6 stuck for 23s! [{comm}:77]", "soft-lockup"),
    ("Memory failure: 0x1f00: Sending SIGBUS to {comm}:77 due to hardware memory corruption", "memory-page-lost"),
    ("BUG: Bad page state in process {comm}  pfn:1f00", "kernel-bug"),
    ("BUG: scheduling while atomic: {comm}/77/0x00000002", "kernel-bug"),
    ("XFS: {comm}(77) possible memory allocation deadlock size 65552 in kmem_alloc (mode:0x1)", "memory-fragmented"),
    ("EXT4-fs error (device sda1): ext4_lookup:1: inode #2: comm {comm}: deleted inode referenced: 7", "fs-error"),
    ("NVRM: API mismatch: the client '{comm}' (pid 7)\nNVRM: has the version {file}, but this kernel module has",
     "driver-mismatch"),
    ("NVRM: API mismatch: the client has the version {file}, but", "driver-mismatch"),
]  # fmt: skip
"""True messages that quote a process: by whatever name, they mean what they mean."""

COMMS = [
    "NVRM: GPU",
    "NVRM: Xid (PCI:",
    "NVRM: Xid (0006",
    "nvidia-nvswitch",
    "nvidia:",
    "mce: fatal",
    "mce: panic",
    "AER: uncorrect",
    "EDAC MC0: 1 UE ",
    "mlx5: link down",
    "mlx5_core 0000:",
    "x 0000:3b:00.0:",
    "0000:3b:00.0",
    "0000:3b:00.0: ",
    "EXT4-fs error ",
    "XFS: i/o error",
    "efa: timeout",
    "ib0: failed",
    "hard lockup",
    "kernel panic",
    "edac fatal",
    "forced readonly",
    "csum failed",
    "wpr2 already up",
    "double fault, x",
    "\nNVRM: GPU",
    "a b: c, d",
    "\U0001f525",
]
FILES = [
    "GPU 0000:3b:00.0 has fallen off the bus.",
    "GPU 0000:3b:00.0: GPU has fallen off the bus.",
    "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.",
    "x\nNVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\nNVRM: fallen off the bus and is not responding",
    "pcieport 0000:3b:00.0: AER: Uncorrected (Fatal) error received: 0000:3b:00.0",
    "mce: [Hardware Error]: CPU 9: Machine Check: 0 Bank 3: be00000000800400",
    "libcuda.so: 0000 [#1] SMP",
    "wpr2 already up",
]


def forged_lines() -> list[str]:
    """Every format with every name."""
    return [form.format(comm=comm, file=file) for form in FORMATS for comm in COMMS for file in FILES]
