"""`healthd klog`: any log in, what it means out."""

from __future__ import annotations

import gzip
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from healthd.cli.commands.klog import LONGEST_LINE, printable, read_log, show
from healthd.cli.main import main
from healthd.core.api.model import Severity

pytestmark = pytest.mark.slow

LOG = """\
[    1.000001] usb 1-1: new high-speed USB device
[ 8123.004512] NVRM: Xid (PCI:0000:c1:00): 79, pid=901, name=trainer, GPU has fallen off the bus.
Apr  7 03:14:15 node17 agent[811]: NVRM: Xid (PCI:0000:c1:00): 48, quoted
4,12,99,-;mlx5_core 0000:9c:00.1: firmware version: 28.43
"""


def healthd(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "healthd.cli.main", *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, timeout=60, check=False)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "kern.log"
    path.write_text(LOG)
    return path


def test_json_has_one_object_per_line_that_means_something(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["klog", "--json", str(log)]) == 0

    xid, mlx5 = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert xid == {
        "line": 2,
        "kind": "xid",
        "xid": 79,
        "sxid": None,
        "pci": "0000:c1:00.0",
        "pid": 901,
        "process": "trainer",
        "severity": "fatal",
        "action": "reboot_node",
        "text": "NVRM: Xid (PCI:0000:c1:00): 79, pid=901, name=trainer, GPU has fallen off the bus.",
    }
    assert (mlx5["line"], mlx5["kind"], mlx5["severity"], mlx5["action"]) == (4, "mlx5", "info", "none")


def test_kinds_that_came_later_are_printed_only_when_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "kern.log"
    path.write_text("nvme nvme0: I/O 12 QID 3 timeout, aborting\nXFS (dm-0): Mounting V5 Filesystem\n")

    main(["klog", "--json", str(path)])
    by_default = capsys.readouterr().out
    main(["klog", "--json", "--all", str(path)])
    all_kinds = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    main(["klog", str(path)])
    table = capsys.readouterr().out

    assert by_default == ""
    assert [(reading["line"], reading["kind"], reading["severity"]) for reading in all_kinds] == [
        (1, "disk", "warning")
    ]
    assert "QID 3 timeout" in table
    assert "Mounting" not in table


def test_one_corrected_error_is_harmless(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "kern.log"
    path.write_text("nvidia 0000:c1:00.0: PCIe Bus Error: severity=Corrected, type=Data Link Layer\n")

    main(["klog", "--json", str(path)])

    reading = json.loads(capsys.readouterr().out)
    assert (reading["kind"], reading["severity"], reading["action"]) == ("aer", "info", "none")


def test_the_table_shows_what_json_shows(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["klog", str(log)]) == 0

    printed = capsys.readouterr().out
    assert "trainer[901]" in printed
    assert "reboot_node" in printed
    assert "quoted" not in printed


def test_a_narrow_terminal_cuts_no_word() -> None:
    out = io.StringIO()

    assert show(read_log(io.BytesIO(LOG.encode())), Console(file=out, width=80))
    first, text, *_ = out.getvalue().splitlines()
    assert first == "2  xid  79  0000:c1:00.0  trainer[901]  fatal  reboot_node"
    assert text.startswith("    NVRM: Xid (PCI:0000:c1:00): 79, pid=901")
    assert max(map(len, out.getvalue().splitlines())) <= 80


def test_a_log_of_noise_says_so_and_is_no_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "noise.log"
    path.write_text("[ 1.0] usb 1-1: new device\n")

    assert main(["klog", str(path)]) == 0
    assert capsys.readouterr() == ("", "healthd: no line means anything to healthd\n")


@pytest.mark.parametrize("arguments", [["klog", "--json"], ["klog", "--json", "-"]])
def test_standard_input_is_read_when_no_file_is_named(arguments: list[str]) -> None:
    done = healthd(*arguments, stdin=LOG.encode())

    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == 2


def test_a_missing_file_is_one_clear_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = tmp_path / "none.log"

    assert main(["klog", str(missing)]) == 2
    assert capsys.readouterr().err == (
        f"healthd: cannot read {missing}: No such file or directory; give a file, or - for standard input\n"
    )


def test_a_compressed_log_is_not_taken_for_noise(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = tmp_path / "kern.log.2.gz"
    old.write_bytes(gzip.compress(b"[ 1.0] NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.\n"))

    assert main(["klog", str(old)]) == 2
    assert capsys.readouterr().err == "healthd: the log is compressed; `zcat FILE | healthd klog` reads it\n"


def test_a_folder_is_not_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["klog", str(tmp_path)]) == 2
    assert "Is a directory" in capsys.readouterr().err


def test_a_reader_that_leaves_early_is_no_error(tmp_path: Path) -> None:
    path = tmp_path / "long.log"
    path.write_text(LOG.replace("[ 8123.004512]", "kern  :err   : [ 8123.004512]") * 5000)
    command = [sys.executable, "-m", "healthd.cli.main", "klog", "--json", str(path)]

    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        complaint = process.stderr.read()

    assert complaint == b""


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_live_log_is_shown_while_it_grows(form: list[str]) -> None:
    command = [sys.executable, "-m", "healthd.cli.main", "klog", *form]

    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(LOG.encode())
        process.stdin.flush()
        shown = process.stdout.readline() + (b"" if form else process.stdout.readline())
        process.stdin.close()

    assert b"0000:c1:00.0" in shown


def test_a_message_of_three_lines_is_one_with_its_address() -> None:
    lines = [
        "NVRM: The NVIDIA GPU 0000:3b:00.0",
        "NVRM: (PCI ID: 10de:2336) installed in this system has",
        "NVRM: fallen off the bus and is not responding to commands.",
    ]
    *_, last = read_log(io.BytesIO("".join(f"[ 1.0] {line}\n" for line in lines).encode()))

    assert (last.line, last.pci, last.severity) == (3, "0000:3b:00.0", Severity.FATAL)


def test_a_long_text_is_folded_in_its_column() -> None:
    out = io.StringIO()
    log = b"[ 1.0] NVRM: Xid (PCI:0000:c1:00): 79, " + b"word " * 60

    show(read_log(io.BytesIO(log)), Console(file=out, width=160))
    head, *rows = out.getvalue().splitlines()
    assert {len(row) - len(row.lstrip()) for row in rows[1:]} == {head.index("text")}
    assert max(map(len, rows)) <= 160


def test_bytes_that_are_no_text_are_survived() -> None:
    raw = b"\x00\xff\xfe\n[ 1.0] NVRM: Xid (PCI:0000:c1:00): 31, pid=1, name=\xff\xfeab, Ch 1\n\xc3"

    readings = list(read_log(io.BytesIO(raw)))

    assert [(reading.line, reading.process) for reading in readings] == [(2, "\ufffd\ufffdab")]


def test_a_line_without_an_end_is_cut_and_the_next_one_counts_right() -> None:
    endless = b"[ 1.0] NVRM: Xid (PCI:0000:c1:00): 31, " + b"x" * (3 * LONGEST_LINE)

    readings = list(read_log(io.BytesIO(endless + b"\n[ 2.0] NVRM: Xid (PCI:0000:c1:00): 48, y\n")))

    assert [(reading.line, reading.xid) for reading in readings] == [(1, 31), (2, 48)]
    assert len(readings[0].text) < LONGEST_LINE


def test_names_of_processes_cannot_drive_the_terminal() -> None:
    assert printable("a\x1b[2Jb\x07\u202ec") == r"a\x1b[2Jb\x07\u202ec"
    assert printable("trainer [1] é") == "trainer [1] é"


def test_json_needs_neither_tables_nor_event_loops() -> None:
    code = (
        "import sys; from healthd.cli.main import main; main(['klog', '--json', '/dev/null']);"
        "print(sorted({'rich', 'asyncio', 'aiohttp', 'structlog'} & set(sys.modules)))"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)

    assert done.stdout == "[]\n"


OWN = """\
judge:
  tiers: [fs-read-only record, xid-79 ticket, xid-unknown-* reboot]
  rules:
    - {name: site-mydrv-fatal, message: "mydrv <device>: fatal error *", tier: reset,
       example: "[ 1.0] mydrv 0000:3b:00.0: fatal error 7", summary: the accelerator met a fatal error}
    - {name: site-mydrv-late, message: "mydrv: is late by *", tier: reset, when: 3 in 1h,
       example: "[ 1.0] mydrv: is late by 7 s", summary: the accelerator is late}
"""
OWN_LOG = """\
[ 1.0] mydrv 0000:3b:00.0: fatal error 7 in unit 3
[ 2.0] mydrv: is late by 7 s
[ 3.0] mydrv: all is well
[ 4.0] NVRM: Xid (PCI:0000:c1:00): 79, GPU has fallen off the bus.
[ 5.0] NVRM: Xid (PCI:0000:c1:00): 997, text
"""


@pytest.fixture
def own(tmp_path: Path) -> list[str]:
    """The arguments that read a log with rules of the site."""
    (tmp_path / "healthd.yaml").write_text(OWN)
    (tmp_path / "own.log").write_text(OWN_LOG)
    return ["klog", str(tmp_path / "own.log"), "--config", str(tmp_path / "healthd.yaml")]


def test_a_line_that_a_rule_of_the_site_is_about_is_shown(own: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*own, "--json"]) == 0

    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(each["line"], each.get("rule"), each["kind"]) for each in found[:2]] == [
        (1, "site-mydrv-fatal", "site"),
        (2, "site-mydrv-late", "site"),
    ]
    assert (found[0]["pci"], found[0]["severity"], found[0]["action"]) == ("0000:3b:00.0", "error", "reset_gpu")
    assert found[0]["text"] == "mydrv 0000:3b:00.0: fatal error 7 in unit 3"
    assert (found[1]["pci"], found[1]["severity"]) == (None, "info"), "one of many is harmless alone"


def test_a_tier_of_the_site_counts_for_healthds_own_rules(own: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    main([*own, "--json"])

    found = {each["line"]: each for each in map(json.loads, capsys.readouterr().out.splitlines())}
    assert (found[4]["severity"], found[5]["action"]) == ("warning", "reboot_node")
    assert "rule" not in found[4]


def test_a_rule_of_the_site_is_named_in_the_table(own: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    main(own)

    assert "site-mydrv-fatal" in capsys.readouterr().out


def test_without_the_configuration_such_a_line_means_nothing(
    own: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    main(own[:2])

    assert "mydrv" not in capsys.readouterr().out


UNSIGNED = b"[    1.0] NVRM: Xid (PCI:0000:c1:00): 79, pid=1, GPU has fallen off the bus.\n"


@pytest.mark.parametrize("level", [b"", b"<3>"], ids=["plain", "raw: the level alone"])
def test_dmesg_does_not_say_who_wrote_a_line_and_that_is_said_once(level: bytes) -> None:
    said = healthd("klog", "--json", stdin=(level + UNSIGNED) * 3)

    assert len(said.stdout.splitlines()) == 3
    assert said.stderr.decode().count("\n") == 1
    assert "line 1 does not say who wrote it" in said.stderr.decode()
    assert "dmesg -x" in said.stderr.decode()


@pytest.mark.parametrize(
    "head",
    [
        "kern  :err   : [    1.0] ",
        "3,12,99,-;",
        "Apr  7 03:14:15 node17 kernel: ",
        "2026-04-07T03:14:15.000001+00:00 node17 kernel: [    1.0] ",
    ],
)
def test_a_line_with_the_kernels_facility_needs_no_note(head: str) -> None:
    said = healthd("klog", "--json", stdin=head.encode() + UNSIGNED.partition(b"] ")[2])

    assert len(said.stdout.splitlines()) == 1
    assert said.stderr == b""


def test_lines_that_mean_nothing_need_no_note() -> None:
    assert healthd("klog", "--json", stdin=b"[    1.0] usb 1-1: new high-speed USB device\n").stderr == b""
