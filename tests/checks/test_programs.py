"""Checks by programs of others, which are shell scripts here that say what the real ones say."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from healthd.checks import programs
from healthd.checks.check import CheckOutcome
from healthd.checks.dcgm_diag import DcgmDiag, DiagResult, parse_diag
from healthd.checks.nccl import Nccl, parse_summary
from healthd.checks.rdma import RdmaLoopback, parse_speed
from tests.checks.contexts import GPU1, a_context, a_gpu, a_port, a_program, is_gone

NCCL_GOOD = """\
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
   268435456      67108864     float     sum      -1   1052.3  255.10  446.42      0   1049.9  255.67  447.43      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 312.5
"""
BW_ROW = """\
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 65536      5000             387.24             386.91             0.737971
---------------------------------------------------------------------------------------
"""


def saying(text: str, *, status: int = 0) -> str:
    return f"cat <<'SAID'\n{text}SAID\nexit {status}"


def test_right_sums_over_all_gpus_pass(tmp_path: Path) -> None:
    environ = a_program(tmp_path, "all_reduce_perf", f'echo "$@" > {tmp_path}/asked\n{saying(NCCL_GOOD)}')

    result = Nccl().run(a_context(a_gpu(), a_gpu(GPU1), environ=environ))

    assert (result.status, result.figures["node"]) == (CheckOutcome.PASS, {"gpus": 2, "bus_gbps": 312.5})
    assert "-g 2" in (tmp_path / "asked").read_text()


def test_wrong_sums_fail_whatever_the_program_says_in_the_end(tmp_path: Path) -> None:
    wrong = NCCL_GOOD.replace(": 0 OK", ": 3 FAILED")

    result = Nccl().run(a_context(a_gpu(), environ=a_program(tmp_path, "all_reduce_perf", saying(wrong))))

    assert result.why == "3 sums over 1 GPUs are wrong"


def test_an_error_of_nccl_fails_with_its_last_line(tmp_path: Path) -> None:
    environ = a_program(tmp_path, "all_reduce_perf", saying("NCCL failure: unhandled system error\n", status=3))

    result = Nccl().run(a_context(a_gpu(), environ=environ))

    assert result.why == "it ended with status 3: NCCL failure: unhandled system error"


@pytest.mark.slow
def test_sums_that_never_come_fail_in_time_and_nothing_is_left_running(tmp_path: Path) -> None:
    environ = a_program(tmp_path, "all_reduce_perf", f"sleep 300 & echo $! > {tmp_path}/child; wait")

    result = Nccl().run(a_context(a_gpu(), environ=environ, ends=time.monotonic() + 1))

    assert "did not end in time" in result.why
    assert is_gone(int((tmp_path / "child").read_text()))


def interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@pytest.fixture
def sigterm_interrupts() -> Iterator[None]:
    before = signal.signal(signal.SIGTERM, interrupt)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("sigterm_interrupts")
def test_a_signal_in_the_moment_in_which_a_program_begins_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[int] = []

    class Interrupted(subprocess.Popen[bytes]):
        """The signal comes when the process has begun, and before the caller has it."""

        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            begun.append(self.pid)
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(subprocess, "Popen", Interrupted)

    with pytest.raises(KeyboardInterrupt), programs.none_left():
        programs.run(["sleep", "300"], os.environ, 300)

    (pid,) = begun
    assert is_gone(pid)
    assert signal.getsignal(signal.SIGTERM) is interrupt


@pytest.mark.usefixtures("sigterm_interrupts")
def test_a_signal_between_two_programs_ends_the_one_that_runs() -> None:
    children: list[programs.Child] = []

    def begin() -> None:
        with programs.none_left():
            children.append(programs.start(["sleep", "300"], os.environ))
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(KeyboardInterrupt):
        begin()

    assert [is_gone(child.pid) for child in children] == [True]


@pytest.mark.parametrize("output", ["", "# Out of bounds values", "# Avg bus bandwidth : x"])
def test_a_summary_that_is_none_reports_nothing(output: str) -> None:
    assert parse_summary(output) == (None, None)


def test_without_the_program_or_a_gpu_there_is_no_sum(tmp_path: Path) -> None:
    installed = a_program(tmp_path, "all_reduce_perf", saying(NCCL_GOOD))

    assert Nccl().run(a_context(a_gpu(), environ={"PATH": "/nowhere"})).status is CheckOutcome.SKIP
    assert Nccl().run(a_context(environ=installed)).status is CheckOutcome.SKIP


BOTH_ENDS = f"""
case "$*" in
    *localhost) [ -e ASKED ] || {{ touch ASKED; echo "Couldn't connect"; exit 1; }}; {saying(BW_ROW)} ;;
    *) exec sleep 300 ;;
esac
"""


def test_a_port_that_reaches_itself_passes_though_the_other_end_is_late(tmp_path: Path) -> None:
    environ = a_program(tmp_path, "ib_write_bw", BOTH_ENDS.replace("ASKED", str(tmp_path / "asked")))

    result = RdmaLoopback().run(a_context(ports=(a_port(),), environ=environ))

    assert (result.status, result.figures["mlx5_0/1"]) == (CheckOutcome.PASS, {"gbps": 386.91, "limit_gbps": 200})


def test_a_port_that_is_too_slow_fails(tmp_path: Path) -> None:
    script = BOTH_ENDS.replace("ASKED", str(tmp_path / "asked")).replace("386.91", "99.5")

    result = RdmaLoopback().run(a_context(ports=(a_port(),), environ=a_program(tmp_path, "ib_write_bw", script)))

    assert result.why == "mlx5_0/1: 99.5 Gb/s, and 200 must be reached"


def test_a_port_whose_listening_end_breaks_fails_with_the_words_of_the_other(tmp_path: Path) -> None:
    environ = a_program(tmp_path, "ib_write_bw", saying("Failed to modify QP to RTR\n", status=1))

    result = RdmaLoopback().run(a_context(ports=(a_port(),), environ=environ))

    assert "Failed to modify QP to RTR" in result.why


@pytest.mark.slow
def test_a_loop_that_hangs_fails_in_time(tmp_path: Path) -> None:
    environ = a_program(tmp_path, "ib_write_bw", "exec sleep 300")

    result = RdmaLoopback().run(a_context(ports=(a_port(),), environ=environ, ends=time.monotonic() + 0.5))

    assert result.why == "mlx5_0/1: it did not end in time"


def test_without_the_program_or_a_port_that_is_up_there_is_no_loop(tmp_path: Path) -> None:
    installed = a_program(tmp_path, "ib_write_bw", saying(BW_ROW))
    idle = (a_port(state="unused"), a_port("efa_0", family="efa"))

    assert RdmaLoopback().run(a_context(ports=(a_port(),), environ={"PATH": "/nowhere"})).status is CheckOutcome.SKIP
    assert RdmaLoopback().run(a_context(ports=idle, environ=installed)).status is CheckOutcome.SKIP


def test_the_last_row_of_ib_write_bw_counts_and_nothing_else_does() -> None:
    assert parse_speed(BW_ROW) == 386.91
    assert parse_speed(" local address: LID 0x01 QPN 0x0127\n 1 2 3") is None


def dcgm3(status: str, warnings: object = ()) -> str:
    result = {"gpu_ids": "0,1", "status": status, **({"warnings": warnings} if warnings else {})}
    tests = [{"name": "Denylist", "results": [{"gpu_ids": "0,1", "status": "PASS"}]}, None]
    more = [{"name": "PCIe", "results": [result]}]
    categories = [{"category": "Deployment", "tests": tests}, {"category": "Integration", "tests": more}]
    return json.dumps({"DCGM GPU Diagnostic": {"test_categories": categories, "version": "3.3.6"}})


def dcgm4(status: str, said: str = "") -> str:
    warnings = {"warnings": [{"error_id": 7, "warning": said}]} if said else {}
    result = {"entity_group": "GPU", "entity_group_id": 1, "entity_id": 3, "status": status, **warnings}
    test = {"name": "memory", "results": [result], "test_summary": {"status": status}}
    return json.dumps({"DCGM Diagnostic": {"test_categories": [{"category": "Hardware", "tests": [test]}]}})


def diag(tmp_path: Path, output: str, *, status: int = 0) -> dict[str, str]:
    return a_program(tmp_path, "dcgmi", saying(f"{output}\n", status=status))


@pytest.mark.parametrize(
    "output", [dcgm3("PASS"), dcgm4("Pass"), dcgm3("WARN", ["a little warm"])], ids=["3", "4", "warns"]
)
def test_diagnostics_that_pass_or_only_warn_pass(tmp_path: Path, output: str) -> None:
    assert DcgmDiag().run(a_context(environ=diag(tmp_path, output))).status is CheckOutcome.PASS


@pytest.mark.parametrize(
    ("output", "why"),
    [
        (dcgm3("FAIL", ["replays above the limit"]), "PCIe GPU 0,1: replays above the limit"),
        (dcgm4("Fail", "a row is broken"), "memory GPU 3: a row is broken"),
        (dcgm4("Melted"), "memory GPU 3: melted"),
    ],
    ids=["3", "4", "unknown"],
)
def test_diagnostics_that_fail_or_say_what_no_one_knows_fail(tmp_path: Path, output: str, why: str) -> None:
    result = DcgmDiag().run(a_context(environ=diag(tmp_path, output, status=226)))

    assert (result.status, result.why) == (CheckOutcome.FAIL, why)


def test_what_libraries_print_before_the_json_is_passed_over() -> None:
    found = list(parse_diag("WARNING: this should not happen\n" + dcgm4("Pass")))

    assert found == [DiagResult("memory", "GPU 3", CheckOutcome.PASS, "pass")]


def test_diagnostics_that_were_all_skipped_say_nothing(tmp_path: Path) -> None:
    assert DcgmDiag().run(a_context(environ=diag(tmp_path, dcgm4("Skip")))).status is CheckOutcome.SKIP


def test_without_dcgm_or_its_host_engine_it_is_skipped(tmp_path: Path) -> None:
    silent = diag(tmp_path, "Error: unable to establish a connection to the host engine", status=1)

    assert DcgmDiag().run(a_context(environ={"PATH": "/nowhere"})).status is CheckOutcome.SKIP
    assert DcgmDiag().run(a_context(environ=silent)).status is CheckOutcome.SKIP


@pytest.mark.parametrize("output", ["", "{", "[]", '{"DCGM Diagnostic": {"runtime_error": "no GPU"}}', "\xff{}"])
def test_diagnostics_without_a_result_do_not_pass(tmp_path: Path, output: str) -> None:
    assert DcgmDiag().run(a_context(environ=diag(tmp_path, output, status=1))).status is CheckOutcome.FAIL


@pytest.mark.slow
def test_diagnostics_that_never_end_fail(tmp_path: Path) -> None:
    environ = a_program(tmp_path, "dcgmi", "exec sleep 300")

    assert DcgmDiag(3).run(a_context(environ=environ, ends=time.monotonic() + 0.3)).why == "level 3 did not end in time"


def test_a_program_that_floods_its_output_is_read_to_the_end(tmp_path: Path) -> None:
    environ = a_program(tmp_path, "noisy", "head -c 300000 /dev/zero; echo done")

    ended = programs.run([str(tmp_path / "noisy")], environ, 20)

    assert (ended.status, ended.output[-5:]) == (0, "done\n")
