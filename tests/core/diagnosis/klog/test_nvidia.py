"""Messages of NVIDIA's kernel modules: three generations of Xid, switches, the rest."""

from __future__ import annotations

import pytest

from healthd.core.diagnosis.klog import LinkFault, MessageKind, Mig, parse_message
from tests.core.diagnosis.klog.reading import read


@pytest.mark.parametrize(
    ("address", "pci"),
    [
        ("PCI:0000:c1:00", "0000:c1:00.0"),
        ("PCI:0000:C1:00.0", "0000:c1:00.0"),
        ("PCI:000c:01:00", "000c:01:00.0"),
        ("PCI:10003:00:00", "10003:00:00.0"),
        ("PCI:00000000:c1:00", "0000:c1:00.0"),
        ("PCI:0000:a0:1d", "0000:a0:1d.0"),
        ("0000:c1:00", "0000:c1:00.0"),
        ("00c1:00", "0000:c1:00.0"),
        ("c1:00", "0000:c1:00.0"),
    ],
)
def test_every_generation_of_addresses_is_read(address: str, pci: str) -> None:
    message = read(f"NVRM: Xid ({address}): 62, 1a2b 00000000")

    assert (message.kind, message.xid, message.pci) == (MessageKind.XID, 62, pci)


@pytest.mark.parametrize(
    ("owner", "pid", "process"),
    [
        ("", None, None),
        ("pid=901, ", 901, None),
        ("pid=0, ", 0, None),
        ("pid='<unknown>', name=<unknown>, ", None, None),
        ("pid=<unknown>, name=<unknown>, ", None, None),
        ("pid='901', name='trainer', ", 901, "trainer"),
        ("pid=901, name=trainer, ", 901, "trainer"),
        ("pid=901, name=io worker, ", 901, "io worker"),
        ("pid=901, name=(sd-worker), ", 901, "(sd-worker)"),
        ("pid=901, name=ray::Actor, ", 901, "ray::Actor"),
        ("pid=901, name=nvc:[driver], ", 901, "nvc:[driver]"),
        ("pid=901, name=a=b;'c\", ", 901, "a=b;'c\""),
        ("pid=901, name=two\nlines, ", 901, "two\nlines"),
        ("pid=901, name=запуск, ", 901, "запуск"),
        ("pid=901, name=, ", 901, None),
        ("pid='', name=, ", None, None),
        ("pid=-1, name=trainer, ", None, "trainer"),
        ("pid=<...>, name=trainer, ", None, "trainer"),
        ("pid=XXXX, name=trainer, ", None, "trainer"),
        ("pid=4294967295, name=trainer, ", 4294967295, "trainer"),
        ("pid=901, name=a,b, ", 901, "a,b"),
        ("pid=901, name=[kworker/7:1], ", 901, "[kworker/7:1]"),
    ],
)
def test_the_owner_is_read_where_the_driver_knows_it(owner: str, pid: int | None, process: str | None) -> None:
    message = read(f"NVRM: Xid (PCI:0000:c1:00): 31, {owner}Ch 00000011, intr 00000000")

    assert (message.pid, message.process) == (pid, process)
    assert message.detail == "Ch 00000011, intr 00000000"


@pytest.mark.parametrize(
    ("tail", "code"),
    [
        (": 48", 48),
        (": 79, ", 79),
        (": 154 (", 154),
        (": 46 more words", 46),
        (": 43, caused by previous Xid 149", 43),
        (": 99999, from the future", 99999),
    ],
)
def test_the_code_is_the_first_number_and_the_text_may_be_missing(tail: str, code: int) -> None:
    assert read(f"NVRM: Xid (PCI:0000:c1:00){tail}").xid == code


@pytest.mark.parametrize(
    "text",
    [
        "NVRM: Xid (PCI:0000:c1:00): none",
        "NVRM: Xid (PCI:0000:c1:00): 79abc",
        "NVRM: Xid (PCI:0000:c1:",
        "NVRM: Xid (somewhere): 79, text",
        "NVRM: Xid: 79",
        "see NVRM: Xid (PCI:0000:c1:00): 79",
        "XidCriticalError: Xid=79",
        "DHCP reply (xid=0x4f)",
    ],
)
def test_what_only_looks_like_an_xid_is_none(text: str) -> None:
    message = parse_message(text)

    assert message is None or message.xid is None


def test_a_line_without_a_code_names_its_device_in_brackets() -> None:
    text = "NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:\nNVRM: BAR0 is 0M @ 0x0"

    assert read(f"{text} (PCI:0000:c1:00.0)").pci == "0000:c1:00.0"


@pytest.mark.parametrize("address", ["PCI:...", "PCI:xxxx:xx:xx", "PCI:0000:xx:00", "PCI:0000"])
def test_a_hidden_address_does_not_hide_the_code(address: str) -> None:
    message = read(f"NVRM: Xid ({address}): 74, NVLink")

    assert (message.xid, message.pci) == (74, None)


def test_the_slice_of_a_gpu_is_read() -> None:
    assert read("NVRM: Xid (PCI:0000:c1:00 GPU-I:05): 43, pid=9, name=a, Ch 1").mig == Mig(gpu=5)
    assert read("NVRM: Xid (PCI:0000:c1:00 GPU-I:05 GPU-CI:01): 43, pid=9").mig == Mig(gpu=5, compute=1)
    assert read("NVRM: Xid (PCI:0000:c1:00): 43, pid=9").mig is None


@pytest.mark.parametrize(
    ("change", "number"),
    [
        ("from 0x0 (None) to 0x2 (OS Reboot)", 2),
        ("from 0x2 (Node Reboot Required) to 0x0 (None)", 0),
        ("from 0x0 to 0x1f", 31),
        ("from 0x0 (None) to", None),
    ],
)
def test_the_new_recovery_action_is_read_by_number(change: str, number: int | None) -> None:
    assert read(f"NVRM: Xid (PCI:0000:c1:00): 154, GPU recovery action changed {change}").recovery == number


def test_a_blackwell_link_error_is_taken_apart() -> None:
    fault = "NETIR_LINK_EVT  Fatal   XC0 i0 Link 07 (0x021425c6 0x1)"

    message = read(f"NVRM: Xid (PCI:0009:01:00): 149, pid=5, name=ray::Actor, {fault}")

    assert message.process == "ray::Actor"
    assert message.link == LinkFault(link=7, words=(0x021425C6, 0x1), unit="NETIR_LINK_EVT", fatal=True)


@pytest.mark.parametrize(
    ("detail", "fault"),
    [
        (
            "MSE degraded Fatal XC0 i0 Link -1 (0x0 0x0)",
            LinkFault(link=None, words=(0, 0), unit="MSE degraded", fatal=True),
        ),
        ("RLW_CTRL Nonfatal XC1 i0 Link 03", LinkFault(link=3, unit="RLW_CTRL")),
        ("NETIR Fatal XC0 i0 Link -1 (0x000fe406", LinkFault(link=None, words=(0xFE406,), unit="NETIR", fatal=True)),
        ("nothing like it", None),
    ],
)
def test_a_link_error_may_be_cut_or_of_no_single_link(detail: str, fault: LinkFault | None) -> None:
    assert read(f"NVRM: Xid (PCI:0009:01:00): 150, {detail}").link == fault


def test_the_registers_of_an_xid_74_are_read() -> None:
    text = (
        "NVRM: Xid (PCI:0000:c1:00): 74, NVLink: fatal error detected on link 11(0x10000, 0x0, 0x4, 0x0, 0x0, 0x0, 0x0)"
    )

    assert read(text).link == LinkFault(link=11, words=(0x10000, 0, 4, 0, 0, 0, 0))


@pytest.mark.parametrize(
    ("detail", "fatal"),
    [
        ("Fatal, Link 12 LTSSM Fault Up", True),
        ("Non-fatal, Link 12 route buffer overflow (First)", False),
        ("Severity 1 Engine instance 12 Sub-engine instance 00", None),
        ("Data {0x00000001, 0x00000002}", None),
    ],
)
def test_a_switch_error_is_read_with_its_own_severity(detail: str, fatal: bool | None) -> None:
    message = read(f"nvidia-nvswitch5: SXid (PCI:0000:b8:00.0): 20009, {detail}")

    assert (message.kind, message.sxid, message.xid, message.pci) == (MessageKind.SXID, 20009, None, "0000:b8:00.0")
    assert message.fatal is fatal


@pytest.mark.parametrize(
    "text",
    [
        "nvidia-nvswitch5: SXid (PCI:0000:b8:00.0): many, Fatal",
        "nvidia-nvswitch5: SXid (nowhere): 20009",
        "nvidia-nvswitch5: open (major=509)",
        "[drm:nv_drm_master_set [nvidia_drm]] *ERROR* no ownership",
        "nouveau 0000:c1:00.0: fifo: fault",
        "NVRM Xid codes are explained below",
        "nvidia-smi: command not found",
        "nvidia-smi (812) used greatest stack depth: 11000 bytes left",
        "nvidia-persistenced: persistence mode is on",
        "nvidia-container-cli: initialization error: driver not loaded",
    ],
)
def test_broken_errors_chatter_and_programs_are_noise(text: str) -> None:
    assert parse_message(text) is None


@pytest.mark.parametrize(
    ("text", "pci"),
    [
        ("NVRM: loading NVIDIA UNIX Open Kernel Module", None),
        ("NVRM: GPU at PCI:0000:c1:00: GPU-01234567", "0000:c1:00.0"),
        ("NVRM: GPU 0000:c1:00.0: RmInitAdapter failed! (0x25:0x65:1456)", "0000:c1:00.0"),
        ("NVRM: GPU 00000000:C1:00.0: RmInitAdapter failed!", "0000:c1:00.0"),
        ("NVRM: GPU c1:00.0: rm_init_adapter failed", "0000:c1:00.0"),
        ("NVRM: GPU2 kgspHealthCheck: a crash report follows", None),
        ("NVRM: NVLink link training completed", None),
        ("nvidia 0000:c1:00.0: enabling device (0000 -> 0002)", "0000:c1:00.0"),
        ("nvidia: module license 'NVIDIA' taints kernel.", None),
        ("nvidia-modeset: WARNING: GPU:0: Lost display notification", None),
        ("nvidia_uvm: module uses symbols from proprietary module nvidia", None),
        ("nvidia-nvlink: Nvlink Core is being initialized, major device number 506", None),
        ("nvidia-peermem nv_mem_client_init:561 ERROR cannot register", None),
        ("nvidia-fs:nvfs_map:77 no page table", None),
        ("nvidia-gpu 0000:c1:00.3: i2c timeout error", "0000:c1:00.3"),
        ("NVRM cpuidInfo: a processor that is not known", None),
        ("nvidia-vgpud[77]: error: no types", None),
        ("nvrm-nvlog: CwAAAAAECAAIAQQC", None),
        ("nvidia-vgpu-mgr[4021]: error: vmiop_log: XID 43 detected", None),
    ],
)
def test_other_lines_of_the_driver_are_read_as_such(text: str, pci: str | None) -> None:
    message = read(text)

    assert (message.kind, message.xid, message.pci) == (MessageKind.NVRM, None, pci)


@pytest.mark.parametrize(
    "text",
    [
        "NVRM: GPU 0000:c1:00.0: GPU has fallen off the bus.",
        "NVRM: GPU at 0000:c1:00.0 has fallen off the bus.",
        "NVRM: fallen off the bus and is not responding to commands.",
        "NVRM: The NVIDIA GPU 0000:d1:00.0\nNVRM: (PCI ID: 10de:2336)\nNVRM: fallen off the bus and is not responding",
    ],
)
def test_a_lost_gpu_is_known_without_an_xid(text: str) -> None:
    assert read(text).gpu_lost
