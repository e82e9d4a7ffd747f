"""What messages without a code mean: each row of the table with a message that it fits, and near misses."""

from __future__ import annotations

import pytest

from healthd.core.judgement import Judgement
from healthd.core.klog import CONTRACT, Kind, parse_message
from healthd.core.model import Action, Blame, Severity
from healthd.core.tiers import all_tiers, tier
from healthd.core.xid import judge, wordings
from healthd.core.xid.words import Says, wording_of
from tests.core.klog.reading import read

NIC = "0000:9c:00.1"

RAISED = [
    ("pcieport 0000:40:01.1: AER: Uncorrected (Fatal) error received: id=0100", "aer-fatal"),
    ("nvidia 0000:c1:00.0: AER: can't recover (no error_detected callback)", "aer-fatal"),
    ("pcieport 0000:40:01.1: DPC: containment event, status:0x1f01 source:0x0000", "pcie-dpc"),
    ("nvme 0000:40:01.1: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer", "aer-nonfatal"),
    ("nvme 0000:40:01.1: PCIe Bus Error: severity=Uncorrectable (Non-Fatal), type=Transaction Layer", "aer-nonfatal"),
    ("nvidia 0000:c1:00.0: PCIe Bus Error: severity=Corrected, type=Data Link Layer, (Transmitter ID)", "aer-storm"),
    ("nvidia 0000:c1:00.0: PCIe Bus Error: severity=Correctable, type=Physical Layer, (Receiver ID)", "aer-storm"),
    ("mce: CPU9: Core temperature above threshold, cpu clock throttled (total events = 4)", "cpu-throttled"),
    ("EDAC MC1: 1 UE memory read error on CPU_SrcID#0_MC#1_Chan#0_DIMM#0 (channel:0 slot:0)", "edac-ue"),
    ("EDAC MC1: 3 CE memory read error on CPU_SrcID#0_MC#1_Chan#0_DIMM#0 (channel:0 slot:0)", "edac-ce-storm"),
    ("Memory failure: 0x1f00: recovery action for dirty LRU page: Recovered", "memory-page-lost"),
    ("Memory failure: 0x1f00: Sending SIGBUS to trainer:77 due to hardware memory corruption", "memory-page-lost"),
    ("Memory failure: 0x1f00: recovery action for reserved kernel page: Failed", "memory-failure"),
    ("Memory failure: 0x1f00: recovery action for unknown page: Ignored", "memory-failure"),
    ("mce: [Hardware Error]: CPU 9: Machine Check: 0 Bank 3: be00000000800400", "mce-fatal"),
    ("mce: Uncorrected hardware memory error in user-access at 3f1a000", "mce-fatal"),
    ("{3}[Hardware Error]: event severity: recoverable", "firmware-recoverable"),
    ("{3}[Hardware Error]: event severity: corrected", "firmware-corrected-storm"),
    ("CMCI storm detected: switching to poll mode", "mce-storm"),
    ("BERT: Error records from previous boot:", "firmware-boot-error"),
    ("NVRM: GPU 0000:c1:00.0: RmInitAdapter failed! (0x25:0x65:1456)", "gpu-init-failed"),
    ("NVRM: No NVIDIA GPU found.", "gpu-none-found"),
    ("NVRM: None of the NVIDIA devices were initialized.", "gpu-none-found"),
    ("NVRM: The NVIDIA probe routine failed for 1 device(s).", "gpu-probe-failed"),
    ("nvidia: probe of 0000:c1:00.0 failed with error -1", "gpu-probe-failed"),
    ("nvidia 0000:c1:00.0: probe with driver nvidia failed with error -1", "gpu-probe-failed"),
    ("NVRM: The NVIDIA probe routine was not called for 8 device(s).", "gpu-other-driver"),
    ("NVRM: API mismatch: the client has the version 570.1, but", "driver-mismatch"),
    ("nvidia: version magic '5.15.0-1 SMP mod_unload ' should be '5.15.0-2 SMP mod_unload '", "driver-not-loaded"),
    ("nvidia_peermem: disagrees about version of symbol ib_register_peer_memory_client", "driver-not-loaded"),
    ("NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:", "gpu-no-memory-window"),
    ("NVRM: BAR1 is 0M @ 0x0 (PCI:0000:c1:00.0)", "gpu-no-memory-window"),
    ("nvidia 0000:c1:00.0: Direct firmware load for nvidia/570/gsp_ga10x.bin failed with error -2", "gpu-no-firmware"),
    ("nvidia 0000:c1:00.0: Unable to change power state from D3cold to D0, device inaccessible", "pcie-unreachable"),
    ("nvidia 0000:c1:00.0: not ready 65535ms after bus reset; giving up", "pcie-unreachable"),
    ("NVRM: Rate limiting GSP RPC error prints for GPU at PCI:0000:9b:00 (printing 1 of every 30).", "gsp-muted"),
    ("NVRM: GPU0 _kgspRpcGspEventPmuHalted: Received signal from GSP that PMU has halted.", "gsp-halted"),
    ("NVRM: GPU recovery action changed from 0x0 to 0x1", "gpu-recovery"),
    ("NVRM: GPU0 Assertion failed: Reset required [NV_ERR_RESET_REQUIRED]", "gpu-reset-required"),
    ("NVRM: krcWatchdog_IMPL: RC watchdog: GPU is probably locked!  Notify Timeout Seconds: 7", "gpu-watchdog"),
    ("nvidia-peermem nv_mem_client_init:561 ERROR cannot register", "peermem-error"),
    ("nvidia-nvswitch3: failed to map BAR0", "nvswitch-error"),
    (f"mlx5_core {NIC}: mlx5_pcie_event:299:(pid 7): Detected insufficient power on the PCIe slot", "mlx5-power"),
    ("mlx5_port_module_event:9:(pid 0): Port module event[error]: module 0, Cable error, High Temperature",
     "mlx5-module-hot"),
    (f"mlx5_core {NIC}: temp_warn:90:(pid 0): High temperature on sensors with bit set 0 1", "mlx5-hot"),
    (f"mlx5_core {NIC}: print_health_info:447:(pid 0): synd 0x10: High temperature", "mlx5-hot"),
    (f"mlx5_core {NIC}: Port module event[error]: module 1, Cable error, Bus stuck (I2C or data shorted)",
     "mlx5-cable"),
    (f"mlx5_core {NIC}: Port module event[error]: module 1, Cable error, Power budget exceeded", "mlx5-cable"),
    (f"mlx5_core {NIC}: print_health_info:447:(pid 0): synd 0xa: ICM fetch PCI error", "mlx5-pcie"),
    (f"mlx5_core {NIC}: poll_health:819:(pid 0): device's health compromised - reached miss count", "mlx5-health"),
    (f"mlx5_core {NIC}: print_health_info:447:(pid 0): synd 0x8: unrecoverable hardware error", "mlx5-health"),
    (f"mlx5_core {NIC}: wait_func:1132:(pid 7): CREATE_DCT(0x710) timeout. Will cause a leak of a command resource",
     "mlx5-cmd-timeout"),
    (f"mlx5_core {NIC}: wait_func_handle_exec_timeout:1128:(pid 7): cmd[-22]: CREATE_UCTX(0xa04) No done completion",
     "mlx5-cmd-timeout"),
    (f"mlx5_core {NIC}: Firmware over 120000 MS in pre-initializing state, aborting", "mlx5-not-started"),
    (f"mlx5_core {NIC}: probe with driver mlx5_core failed with error -12", "mlx5-not-started"),
    ("mlx5_core: probe of 0000:9c:00.1 failed with error -12", "mlx5-not-started"),
    (f"mlx5_core {NIC} ens1: TX timeout detected", "mlx5-tx-timeout"),
    ("NETDEV WATCHDOG: ens1f1np1 (mlx5_core): transmit queue 3 timed out", "mlx5-tx-timeout"),
    (f"mlx5_core {NIC} ens1: Link down", "mlx5-link-down"),
    (f"mlx5_core {NIC}: mlx5_cmd_out_err:838:(pid 7): MODIFY_QP(0x502) failed, status internal error(0x1)",
     "mlx5-error"),
    (f"efa {NIC}: Wait for completion (polling) timeout", "efa-timeout"),
    (f"efa {NIC}: Device isn't ready, abort com init", "efa-not-started"),
    (f"efa {NIC} rdmap5s0: Failed to process command CREATE_QP (opcode 1) comp_status 5 err -5", "efa-error"),
    ("ib0: multicast join failed for ff12:401b, status -110", "ib-subnet"),
    (f"bnxt_en {NIC}: QPLIB: cmdq[0x7]=0x3 timedout (500)msec", "ib-timeout"),
    ("infiniband bnxt_re0: Couldn't start port", "ib-error"),
    ("Out of memory: Killed process 4242 (trainer) total-vm:1kB, anon-rss:1kB", "oom"),
    ("INFO: task trainer:77 blocked for more than 120 seconds.", "hung-task"),
    ("INFO: task io worker:77 blocked for more than 241 seconds.", "hung-task"),
    ("INFO: task kworker/u64:3:77 blocked in I/O wait for more than 120 seconds.", "hung-task"),
    ("watchdog: BUG: soft lockup - CPU#6 stuck for 23s! [trainer:77]", "soft-lockup"),
    ("NMI watchdog: BUG: soft lockup - CPU#6 stuck for 22s! [trainer:77]", "soft-lockup"),
    ("BUG: soft lockup - CPU#6 stuck for 67s! [trainer:77]", "soft-lockup"),
    ("watchdog: Watchdog detected hard LOCKUP on cpu 6", "hard-lockup"),
    ("NMI watchdog: Watchdog detected hard LOCKUP on cpu 6", "hard-lockup"),
    ("watchdog: CPU6: Watchdog detected hard LOCKUP on cpu 7", "hard-lockup"),
    ("BUG: workqueue lockup - pool cpus=6 node=0 flags=0x0 nice=0 stuck for 33s!", "workqueue-lockup"),
    ("rcu: INFO: rcu_sched self-detected stall on CPU", "rcu-stall"),
    ("INFO: rcu_sched detected stalls on CPUs/tasks:", "rcu-stall"),
    ("rcu: INFO: rcu_preempt detected expedited stalls on CPUs/tasks: { 6-... } 21 jiffies s: 9", "rcu-stall"),
    ("rcu: rcu_preempt kthread starved for 5250 jiffies! g77 f0x0", "rcu-stall"),
    ("Kernel panic - not syncing: VFS: Unable to mount root fs", "kernel-panic"),
    ("BUG: unable to handle page fault for address: ffffb1c0", "kernel-oops"),
    ("BUG: kernel NULL pointer dereference, address: 0000000000000008", "kernel-oops"),
    ("Oops: 0002 [#1] SMP NOPTI", "kernel-oops"),
    ("Oops: general protection fault, probably for non-canonical address 0xdead: 0000 [#1] PREEMPT SMP", "kernel-oops"),
    ("general protection fault, probably for non-canonical address 0xdead: 0000 [#1] SMP", "kernel-oops"),
    ("Unable to handle kernel paging request at virtual address ffff8000", "kernel-oops"),
    ("Internal error: Oops: 0000000096000004 [#1] SMP", "kernel-oops"),
    ("invalid opcode: 0000 [#1] SMP", "kernel-oops"),
    ("SError Interrupt on CPU6, code 0x00000000bf000002 -- SError", "kernel-oops"),
    ("kernel BUG at mm/slub.c:379!", "kernel-bug"),
    ("BUG: Bad page state in process trainer  pfn:1f00", "kernel-bug"),
    ("BUG: scheduling while atomic: trainer/77/0x00000002", "kernel-bug"),
    ("Uhhuh. NMI received for unknown reason 3d on CPU 6.", "nmi-unknown"),
    ("NMI: PCI system error (SERR) for reason b1 on CPU 0.", "nmi-hardware"),
    ("NMI: IOCK error (debug interrupt?) for reason 71 on CPU 0.", "nmi-hardware"),
    ("CPU9: Package temperature above threshold, cpu clock throttled (total events = 12)", "cpu-throttled"),
    ("thermal thermal_zone3: acpitz: critical temperature reached, shutting down", "thermal-critical"),
    ("pcieport 0000:40:01.1: pciehp: Slot(7): Link Down", "pcie-link-down"),
    ("pcieport 0000:40:01.1: pciehp: Slot(7): Card not present", "pcie-link-down"),
    ("vfio-pci 0000:40:01.1: Unable to change power state from D3cold to D0, device inaccessible", "pcie-unreachable"),
    ("nvme 0000:40:01.1: not ready 65535ms after FLR; giving up", "pcie-unreachable"),
    ("nvme nvme0: Removing after probe failure status: -19", "nvme-lost"),
    ("nvme nvme0: Disabling device after reset failure: -19", "nvme-lost"),
    ("nvme nvme0: Device not ready; aborting reset, CSTS=0x1", "nvme-lost"),
    ("nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0x10", "nvme-reset"),
    ("nvme nvme0: I/O 12 QID 3 timeout, reset controller", "nvme-reset"),
    ("nvme nvme4: I/O tag 22 (2016) opcode 0x2 (Admin Cmd) QID 0 timeout, reset controller", "nvme-reset"),
    ("nvme nvme0: I/O 12 QID 3 timeout, aborting", "nvme-timeout"),
    ("nvme nvme0: I/O 12 QID 3 timeout, completion polled", "nvme-timeout"),
    ("block nvme0n1: no available path - failing I/O", "disk-path-lost"),
    ("device-mapper: multipath: 253:2: Failing path 8:32.", "disk-path-lost"),
    ("md/raid1:md0: Disk failure on sda1, disabling device.", "raid-disk-failed"),
    ("md: super_written gets error=-5", "raid-disk-failed"),
    ("critical medium error, dev sda, sector 1234 op 0x0:(READ) flags 0x0 phys_seg 1", "disk-medium-error"),
    ("nvme0n1: Read(0x2) @ LBA 0, 8 blocks, Unrecovered Read Error (sct 0x2 / sc 0x81) DNR", "disk-medium-error"),
    ("sd 0:0:0:0: [sda] tag#3 Sense Key : Medium Error [current]", "disk-medium-error"),
    ("sd 0:0:0:0: rejecting I/O to offline device", "disk-offline"),
    ("sd 0:0:0:0: Device offlined - not ready after error recovery", "disk-offline"),
    ("critical space allocation error, dev dm-3, sector 7 op 0x1:(WRITE) flags 0x0", "disk-pool-full"),
    ("blk_update_request: I/O error, dev nvme0n1, sector 1234 op 0x0:(READ) flags 0x0 phys_seg 1", "disk-io-error"),
    ("I/O error, dev nvme0n1, sector 1234 op 0x1:(WRITE) flags 0x8800 phys_seg 1 prio class 2", "disk-io-error"),
    ("print_req_error: I/O error, dev sda, sector 7", "disk-io-error"),
    ("end_request: I/O error, dev sda, sector 7", "disk-io-error"),
    ("Buffer I/O error on dev nvme0n1p1, logical block 7, lost async page write", "disk-io-error"),
    ("ata1.00: exception Emask 0x0 SAct 0x0 SErr 0x0 action 0x6 frozen", "ata-error"),
    ("EXT4-fs (nvme0n1p1): Remounting filesystem read-only", "fs-read-only"),
    ("BTRFS info (device sda1 state E): forced readonly", "fs-read-only"),
    ("FAT-fs (sda1): Filesystem has been set read-only", "fs-read-only"),
    ("XFS (dm-0): log I/O error -5. Shutting down filesystem", "fs-shut-down"),
    ("XFS (dm-0): Filesystem has been shut down due to log error (0x2).", "fs-shut-down"),
    ("Aborting journal on device nvme0n1p1-8.", "fs-shut-down"),
    ("XFS (dm-0): Metadata CRC error detected at xfs_agf_read_verify+0xd1/0xf0, xfs_agf block 0x1", "fs-corrupt"),
    ("BTRFS warning (device sda1): csum failed root 5 ino 257 off 0 csum 0x1 expected csum 0x2", "fs-corrupt"),
    ("EXT4-fs (sda1): error count since last fsck: 5", "fs-old-errors"),
    ("nfs: server nas7 not responding, still trying", "nfs-not-responding"),
    ("nfs: server nas7 not responding, timed out", "nfs-not-responding"),
    (r"CIFS: VFS: \\nas7 has not responded in 180 seconds. Reconnecting...", "smb-not-responding"),
    ("LustreError: 167-0: lfs-MDT0000-mdc: This client was evicted by lfs-MDT0000; in progress", "lustre-lost"),
    ("libceph: mon0 (1)10.0.0.7:6789 session lost, hunting for new mon", "ceph-lost"),
    ("ceph: mds0 caps stale", "ceph-lost"),
    ("XFS: trainer(77) possible memory allocation deadlock size 65552 in kmem_alloc (mode:0x1)", "memory-fragmented"),
    ('XFS (dm-0): metadata I/O error in "xfs_imap_to_bp+0x61/0xb0" at daddr 0x1 len 32 error 5', "fs-io-error"),
    ("JBD2: Detected IO errors while flushing file data on sda1-8", "fs-io-error"),
    ("EXT4-fs error (device sda1): ext4_lookup:1234: inode #2: comm ls: deleted inode referenced: 7", "fs-error"),
    ("BTRFS error (device sda1): bdev /dev/sda1 errs: wr 1, rd 0, flush 0, corrupt 0, gen 0", "fs-error"),
    ("NETDEV WATCHDOG: eth7 (bnxt_en): transmit queue 3 timed out", "net-tx-timeout"),
    ("e1000e 0000:00:19.0 eno1: NETDEV WATCHDOG: CPU: 0: transmit queue 0 timed out 5632 ms", "net-tx-timeout"),
    ("ena 0000:00:05.0: Keep alive watchdog timeout.", "net-tx-timeout"),
    (f"bnxt_en {NIC} eth7: Error (timeout: 5000015) msg {{0x23 0x4f}} len:0", "net-firmware"),
    (f"bnxt_en {NIC} eth7: NIC Link is Down", "net-link-down"),
    ("pt_main_thread[77]: segfault at 7f79 ip 00007f7c sp 00007f7d error 4 in libnccl.so.2[7f7c7ac00000+d3d3000]",
     "crash-in-gpu-library"),
    ("traps: trainer[77] general protection fault ip:7f7c sp:7f7d error:0 in libcuda.so.1[7f7c7ac00000+d3d3000]",
     "crash-in-gpu-library"),
]  # fmt: skip

ENDED = [
    (f"mlx5_core {NIC}: mlx5_pcie_event:304:(pid 7): PCIe slot advertised sufficient power (75W).", "mlx5-power"),
    (f"mlx5_core {NIC} ens1: Link up", "mlx5-link-down"),
    ("pcieport 0000:40:01.1: pciehp: Slot(7): Link Up", "pcie-link-down"),
    ("pcieport 0000:40:01.1: pciehp: Slot(7): Card present", "pcie-link-down"),
    ("nfs: server nas7 OK", "nfs-not-responding"),
    ("Lustre: lfs-MDT0000-mdc: Connection restored to 10.0.0.7@o2ib (at 10.0.0.7@o2ib)", "lustre-lost"),
    ("libceph: mon0 (1)10.0.0.7:6789 session established", "ceph-lost"),
    (f"bnxt_en {NIC} eth7: NIC Link is Up, 200000 Mbps full duplex, Flow control: none", "net-link-down"),
]

HARMLESS = [
    "pcieport 0000:40:01.1: AER: Corrected error received: 0000:41:00.0",
    "mlx5_core 0000:40:01.1:   device [15b3:1021] error status/mask=00001000/00000000",
    "igen6_edac 0000:ed:01.0: AER: device recovery successful",
    "mce: [Hardware Error]: Machine check events logged",
    "mce: CPU9: Core temperature/speed normal",
    "MCE: In-kernel MCE decoding enabled.",
    "EDAC MC0: Giving out device to module amd64_edac controller F19h_M10h: DEV 0000:00:18.3 (INTERRUPT)",
    "GHES: APEI firmware first mode is enabled by APEI bit.",
    "NVRM: loading NVIDIA UNIX Open Kernel Module",
    "nvidia: module verification failed: signature and/or required key missing - tainting kernel",
    "nvidia-nvswitch3: using MSI",
    "nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping further processing",
    f"mlx5_core {NIC}: mlx5_cmd_out_err:838:(pid 7): ACCESS_REG(0x805) op_mod(0x1) failed, status bad resource(0x5)",
    f"mlx5_core {NIC}: mlx5_cmd_eq_recover:247:(pid 7): Recovered 1 EQEs on cmd_eq",
    f"mlx5_core {NIC}: Port module event: module 1, Cable unplugged",
    f"mlx5_core {NIC}: 63.008 Gb/s available PCIe bandwidth (8.0 GT/s PCIe x8 link)",
    f"mlx5_core {NIC}: PCIe slot power capability was not advertised.",
    "mlx5_warn:mlx5_4:dump_cqe:272:(pid 7): dump error cqe",
    "infiniband mlx5_4: dump_cqe:272:(pid 7): dump error cqe",
    f"efa {NIC} rdmap5s0: Failed to process command DEREG_MR (opcode 8) comp_status 7 err -22",
    f"efa {NIC}: Setup irq:33",
    "INFO: task trainer:77 is blocked on a mutex likely owned by task trainer:78.",
    "BUG: sleeping function called from invalid context at mm/slab.h:7",
    "Dazed and confused, but trying to continue",
    "CPU9: Core temperature/speed normal",
    "CPU9: Package power limit notification (total events = 3)",
    "pcieport 0000:40:01.1: pciehp: Slot(7): Attention button pressed",
    "nvme 0000:40:01.1: not ready 1023ms after FLR; waiting",
    "nvme nvme0: Shutdown timeout set to 8 seconds",
    "nvme nvme0: 64/0/0 default/read/poll queues",
    "nvme nvme0: pci function 0000:01:00.0",
    "I/O error, dev sr0, sector 0 op 0x0:(READ) flags 0x80700 phys_seg 1 prio class 2",
    "blk_update_request: I/O error, dev fd0, sector 0",
    "Buffer I/O error on dev sr0, logical block 0, async page read",
    "operation not supported error, dev nvme0n1, sector 7 op 0x9:(WRITE_ZEROES) flags 0x800",
    "sd 0:0:0:0: [sda] Attached SCSI disk",
    "ata1: SATA link down (SStatus 0 SControl 300)",
    "md/raid1:md0: active with 2 out of 2 mirrors",
    "md: data-check of RAID array md0",
    "device-mapper: ioctl: 4.48.0-ioctl (2023-03-01) initialised",
    "EXT4-fs (sda1): mounted filesystem with ordered data mode. Opts: errors=remount-ro",
    "EXT4-fs (sda1): re-mounted 7f. Quota mode: none.",
    "XFS (dm-0): Mounting V5 Filesystem",
    "XFS (dm-0): User initiated shutdown received.",
    "BTRFS info (device sda1): bdev /dev/sda1 errs: wr 0, rd 0, flush 0, corrupt 0, gen 0",
    "NFS: Registering the id_resolver key type",
    "libceph: loaded (mon/osd proto 15/24)",
    "Lustre: Lustre: Build Version: 2.15.3",
    "ena 0000:00:05.0 ens5: Local page cache is disabled for less than 16 channels",
]


def judged(text: str) -> Judgement:
    return judge(read(text))


@pytest.mark.parametrize(("text", "rule"), RAISED)
def test_a_message_raises_the_finding_of_its_rule(text: str, rule: str) -> None:
    judgement = judged(text)

    assert (judgement.rule, judgement.raises, judgement.ends) == (rule, True, False)


@pytest.mark.parametrize(("text", "rule"), ENDED)
def test_good_news_ends_the_finding_of_its_rule(text: str, rule: str) -> None:
    judgement = judged(text)

    assert (judgement.rule, judgement.raises, judgement.ends) == (rule, False, True)


@pytest.mark.parametrize("text", HARMLESS)
def test_what_only_resembles_a_fault_raises_nothing(text: str) -> None:
    judgement = judged(text)

    assert (judgement.raises, judgement.ends) == (False, False)
    assert judgement.severity is Severity.INFO


def test_every_row_has_a_message_here_that_it_fits() -> None:
    texts = [text for text, _ in (*RAISED, *ENDED)] + HARMLESS
    met = {id(wording_of(read(text))) for text in texts}
    never = [row.summary for row in wordings() if id(row) not in met]

    assert never == []


def test_no_word_of_the_machine_takes_a_node_out_of_service() -> None:
    assert not any(tier(row.tier).quarantines for row in wordings() if row.tier)


def test_every_row_is_whole() -> None:
    for row in wordings():
        assert (row.tier in all_tiers()) is (row.says is Says.RAISES), row
        assert bool(row.rule) is (row.says is not Says.NOTHING), row
        assert row.needs is None or row.source, row
        assert all(word == word.lower() for word in (*row.any, *row.also)), row


def test_what_ends_is_also_raised() -> None:
    raised = {row.rule for row in wordings() if row.says is Says.RAISES}

    assert {row.rule for row in wordings() if row.says is Says.ENDS} <= raised


def test_kinds_that_scripts_know_are_those_that_always_were() -> None:
    assert {kind.value for kind in CONTRACT} == {"xid", "sxid", "nvrm", "aer", "mlx5", "efa", "ib", "mce", "oom"}


def test_one_corrected_error_is_no_finding_yet() -> None:
    needs = judged("nvidia 0000:c1:00.0: PCIe Bus Error: severity=Corrected, type=Data Link Layer").needs

    assert needs is not None
    assert needs.times > 1


@pytest.mark.parametrize(
    ("text", "blame"),
    [
        (f"mlx5_core {NIC}: Port module event[error]: module 1, Cable error, Unsupported cable", Blame.LINK),
        (f"mlx5_core {NIC}: mlx5_pcie_event:299:(pid 7): Detected insufficient power on the PCIe slot", Blame.NODE),
        (f"mlx5_core {NIC}: poll_health:819:(pid 0): device's health compromised", Blame.DEVICE),
        ("ib0: multicast join failed for ff12:401b, status -110", Blame.PEER),
        ("nfs: server nas7 not responding, still trying", Blame.PEER),
        ("Out of memory: Killed process 4242 (trainer) total-vm:1kB", Blame.APPLICATION),
        ("a[7]: segfault at 7f79 ip 00007f7c sp 00007f7d error 4 in libnccl.so.2[7f7c7ac00000+d3d3000]",
         Blame.APPLICATION),
    ],
)  # fmt: skip
def test_the_blame_is_located(text: str, blame: Blame) -> None:
    assert judged(text).blame is blame


def test_a_kernel_that_crashed_wants_a_reboot_at_leisure() -> None:
    judgement = judged("BUG: kernel NULL pointer dereference, address: 0000000000000008")

    assert (judgement.action, judgement.quarantines) == (Action.REBOOT_NODE, False)
    assert judgement.message.endswith("Reboot the node when it is idle.")


def test_a_crashed_process_is_named() -> None:
    message = read("io worker[77]: segfault at 7f79 ip 00007f sp 00007f error 4 in libcuda.so.1[7f7c7ac00000+d3d3000]")

    assert (message.kind, message.process, message.pid) == (Kind.CRASH, "io worker", 77)


def test_the_rest_of_an_xid_in_a_record_of_its_own_is_nothing() -> None:
    assert parse_message("Head 00000003 Count 0023070b") is None
