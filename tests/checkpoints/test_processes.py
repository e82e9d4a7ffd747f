"""The processes that read what users wrote."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from healthd.checkpoints.child import MEMORY, OUT_OF_ROOM
from healthd.checkpoints.processes import PROGRAM, Asking, Processes, ReaderEnded
from healthd.checkpoints.report import Inquiry
from healthd.core.checkpoint.verification import VerificationReport
from tests.checkpoints.builders import safetensors_bytes

pytestmark = pytest.mark.slow

SLEEPER = (sys.executable, "-c", "import sys, time; print('{}', flush=True); sys.stdin.readline(); time.sleep(600)")
"""Answers at once and once."""


def test_one_process_serves_one_read_after_the_other(tmp_path: Path) -> None:
    (tmp_path / "step_7.safetensors").write_bytes(safetensors_bytes({"weights": 64}))
    processes = Processes(idle=1)

    kept = []
    for _ in range(2):
        report = processes.ask(Inquiry(location=str(tmp_path)), 60)
        assert report.found is not None
        assert report.found.step == 7
        kept += processes._idle

    assert kept[0] is kept[1]


def test_one_that_hangs_is_ended_and_the_next_read_has_a_new_one(tmp_path: Path) -> None:
    processes = Processes(idle=1, program=SLEEPER)
    first = processes.ask(Inquiry(location=str(tmp_path)), 60)

    with pytest.raises(TimeoutError, match="has not answered within 0 s"):
        processes.ask(Inquiry(location=str(tmp_path)), 0.01)

    assert first == processes.ask(Inquiry(location=str(tmp_path)), 60) == VerificationReport()


def test_one_that_earlier_reads_wore_out_is_replaced_within_the_read(tmp_path: Path) -> None:
    once = "import sys; sys.stdin.readline(); print('{}', flush=True); sys.stdin.readline(); sys.exit(1)"
    processes = Processes(idle=1, program=(sys.executable, "-c", once))

    assert [processes.ask(Inquiry(location=str(tmp_path)), 60) for _ in range(3)] == [VerificationReport()] * 3


def status_of(call: str, inquiry: Inquiry | None = None) -> int:
    """How a child ends that is asked to do *call* of its module, and whose parent lives on."""
    script = f"import healthd.checkpoints.child as child; child.{call}"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        if inquiry is not None:
            process.stdin.write(msgspec.json.encode(inquiry) + b"\n")
            process.stdin.flush()
        return process.wait(60)


def test_a_read_that_nearly_took_all_memory_goes_without_an_answer(tmp_path: Path) -> None:
    assert status_of(f"ROOMY = 0.01; child.main({64 << 20})", Inquiry(location=str(tmp_path))) == OUT_OF_ROOM


def test_one_with_nothing_to_do_ends_by_itself() -> None:
    assert status_of("main(idle=0.01)") == 0


def test_one_that_no_one_waits_for_is_ended(tmp_path: Path) -> None:
    processes, asking = Processes(idle=1, program=SLEEPER), Asking()
    processes.ask(Inquiry(location=str(tmp_path)), 60)
    asking.end()

    with pytest.raises(ReaderEnded):
        processes.ask(Inquiry(location=str(tmp_path)), 60, asking=asking)

    assert processes._idle == []


def test_it_may_take_no_more_memory_than_that() -> None:
    script = f"from healthd.checkpoints.child import limit; limit(); print('bounded', flush=True); bytes({MEMORY})"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)

    assert ended.stdout == "bounded\n"
    assert ended.stderr.splitlines()[-1] == "MemoryError"


def test_it_ends_when_its_parent_does_also_in_the_middle_of_a_read(tmp_path: Path) -> None:
    inquiry = msgspec.json.encode(Inquiry(location=str(tmp_path)))

    ended = subprocess.run(PROGRAM, input=inquiry + b"\n", stdout=subprocess.PIPE, check=False, timeout=60)

    assert ended.returncode == 0


PROGRAM_THAT_ENDS = """
import sys, threading, time
from healthd.checkpoints.processes import Processes
from healthd.checkpoints.report import Inquiry

processes = Processes(idle=1, program=sys.argv[1:])
inquiry = Inquiry(location="/nowhere")
threading.Thread(target=processes.ask, args=(inquiry, 600), daemon=True).start()
sys.stdin.readline()
"""


def test_no_process_outlives_the_program_also_in_the_middle_of_a_read(tmp_path: Path) -> None:
    """One that does not hear the end of its input: it hangs, or a busy machine does not let it run."""
    pipe = tmp_path / "pid"
    os.mkfifo(pipe)
    deaf = f"import os, time; open({str(pipe)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    script = [sys.executable, "-c", PROGRAM_THAT_ENDS, sys.executable, "-c", deaf]
    with subprocess.Popen(script, stdin=subprocess.PIPE) as program:
        child = os.pidfd_open(int(pipe.read_text()))
        assert program.stdin
        program.stdin.close()
        assert program.wait(60) == 0

    try:
        assert select.select([child], [], [], 0) == ([child], [], [])
    finally:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(child, signal.SIGKILL)
        os.close(child)
