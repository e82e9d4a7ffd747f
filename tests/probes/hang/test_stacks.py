"""Stacks of Python processes: by a program that stands in for py-spy, and by py-spy itself."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from healthd.core.hang.suspects.evidence import MOST_FRAMES, Frame
from healthd.core.hang.suspects.outliers import wait_of
from healthd.core.hang.suspects.places import package_function
from healthd.core.hang.suspects.stacks import NO_FUNCTION, NoStack, read_look, read_py_spy
from healthd.probes.errors import CannotRead
from healthd.probes.hang.stacks import read_stack

SITE = "/opt/venv/lib/python3.12/site-packages/"
LIBRARY = "/usr/lib/python3.12/"
OWN = ("main", "/home/u/job/train.py")
BARRIER = ("barrier", SITE + "torch/distributed/distributed_c10d.py")
LOOP_OF_RAY = ("Worker.main_loop", SITE + "ray/_private/worker.py")


def threads(*frames: tuple[str, str], pid: int = 7, name: str = "MainThread") -> bytes:
    return json.dumps(
        [
            {
                "os_thread_id": pid + 1,
                "thread_name": "watchdog",
                "frames": [{"name": "wait", "filename": LIBRARY + "threading.py", "line": 1}],
            },
            {
                "os_thread_id": pid,
                "thread_name": name,
                "frames": [{"name": function, "filename": file, "line": 3} for function, file in frames],
            },
        ]
    ).encode()


def with_thread(main: list[tuple[str, str]], beside: list[tuple[str, str]]) -> bytes:
    """The main thread, and one beside it."""
    return json.dumps(
        json.loads(threads(*main)) + json.loads(threads(*beside, pid=17, name="Thread-1 (save)"))
    ).encode()


class TestOutput:
    def test_the_main_thread_is_read_with_the_ends_of_its_paths(self) -> None:
        output = threads(
            ("all_reduce", SITE + "torch/distributed/distributed_c10d.py"), ("main", "/home/u/job/train.py")
        )
        stack = read_py_spy(output, 7)
        assert stack.frames == (
            Frame("all_reduce", "torch/distributed/distributed_c10d.py", 3),
            Frame("main", "job/train.py", 3, is_own=True),
        )
        assert wait_of(stack) is not None

    @pytest.mark.parametrize(
        "waits_in",
        [
            [("Thread._wait_for_tstate_lock", LIBRARY + "threading.py"), ("Thread.join", LIBRARY + "threading.py")],
            [("join", LIBRARY + "threading.py")],
            [("_shutdown", LIBRARY + "threading.py")],
            [("wait", LIBRARY + "threading.py"), ("Future.result", LIBRARY + "concurrent/futures/_base.py")],
            [("wait", LIBRARY + "threading.py"), ("wait", LIBRARY + "concurrent/futures/_base.py")],
        ],
    )
    def test_a_rank_that_waits_for_its_thread_in_a_collective_waits_for_others(
        self, waits_in: list[tuple[str, str]]
    ) -> None:
        stack = read_py_spy(with_thread([*waits_in, OWN], [BARRIER, ("save", "/home/u/job/train.py")]), 7)
        assert [frame.function for frame in stack.frames] == ["barrier", "save"]
        assert wait_of(stack) is not None

    def test_a_rank_that_waits_for_a_thread_which_waits_for_no_other_rank_does_not_wait_for_others(self) -> None:
        joins = [("Thread.join", LIBRARY + "threading.py"), OWN]
        stack = read_py_spy(with_thread(joins, [("Event.wait", LIBRARY + "threading.py")]), 7)
        assert [frame.function for frame in stack.frames] == ["Thread.join", "main"]
        assert wait_of(stack) is None

    @pytest.mark.parametrize(
        "does",
        [("Event.wait", LIBRARY + "threading.py"), ("join", "/home/u/job/rows.py"), ("read", LIBRARY + "socket.py")],
    )
    def test_a_thread_in_a_collective_says_nothing_of_a_main_thread_that_does_not_wait_for_its_end(
        self, does: tuple[str, str]
    ) -> None:
        stack = read_py_spy(with_thread([does, OWN], [BARRIER]), 7)
        assert stack.frames[0].function == does[0]
        assert wait_of(stack) is None

    def test_a_thread_in_a_collective_beside_a_program_that_waits_for_something_else_is_known(self) -> None:
        queue = [("Queue.get", LIBRARY + "queue.py"), OWN]
        assert read_py_spy(with_thread(queue, [BARRIER, ("run", LIBRARY + "threading.py")]), 7).thread_waits
        assert not read_py_spy(with_thread(queue, [("read", LIBRARY + "socket.py"), OWN]), 7).thread_waits
        assert not read_py_spy(with_thread([BARRIER, OWN], [BARRIER, OWN]), 7).thread_waits

    @pytest.mark.parametrize(
        ("does", "waits"), [([BARRIER, OWN], True), ([("recv", LIBRARY + "socket.py"), OWN], False)]
    )
    def test_a_program_that_a_worker_of_ray_runs_in_a_thread_is_what_is_read(
        self, does: list[tuple[str, str]], waits: bool
    ) -> None:
        stack = read_py_spy(with_thread([LOOP_OF_RAY, ("<module>", SITE + "ray/default_worker.py")], does), 7)
        assert [frame.function for frame in stack.frames] == [name for name, _ in does]
        assert (wait_of(stack) is not None, stack.thread_waits) == (waits, False)

    def test_a_worker_of_ray_that_runs_no_program_is_in_its_loop(self) -> None:
        stack = read_py_spy(with_thread([LOOP_OF_RAY], [BARRIER]), 7)
        assert stack.frames[0].function == "Worker.main_loop"

    @pytest.mark.parametrize(
        "path", ["/home/u/job/train.py", "train.py", "/opt/lib/python/rows.py", "/python3/main.py"]
    )
    def test_code_that_is_in_no_library_is_the_program_s_own(self, path: str) -> None:
        assert is_own(path)

    @pytest.mark.parametrize(
        "path",
        [
            SITE + "torch/_ops.py",
            "/usr/lib/python3/dist-packages/yaml/loader.py",
            "/usr/lib/python3.11/socket.py",
            "/usr/lib64/python3.13t/re/__init__.py",
            "<frozen runpy>",
            "<string>",
            "/tmp/torchinductor_root/ab/cabxyz.py",
            "",
        ],
    )
    def test_libraries_and_generated_code_are_not(self, path: str) -> None:
        assert not is_own(path)

    @pytest.mark.parametrize(
        ("owns", "is_native"), [([False, False], True), ([False, True], False), ([False, None], False), ([], False)]
    )
    def test_a_process_is_in_compiled_code_while_each_thread_is_known_not_to_hold_the_lock(
        self, owns: list[bool | None], is_native: bool
    ) -> None:
        spied = json.loads(threads(OWN))
        for thread, owned in zip(spied, owns, strict=False):
            thread["owns_gil"] = owned
        look = read_look(json.dumps(spied).encode(), 7)

        assert (look.is_native, look.stack.frames[0].function) == (is_native, "main")

    @pytest.mark.parametrize(
        ("path", "function"),
        [
            (SITE + "torch/nn/functional.py", ("f", "torch/nn/functional.py")),
            ("/usr/lib/python3/dist-packages/yaml/loader.py", ("f", "yaml/loader.py")),
            ("/usr/lib/python3.11/json/decoder.py", None),
            ("<frozen genericpath>", None),
            ("/home/u/job/train.py", None),
            ("", None),
        ],
    )
    def test_functions_of_packages_are_those_of_torch_and_not_of_the_standard_library_or_the_program(
        self, path: str, function: tuple[str, str] | None
    ) -> None:
        assert package_function(read_py_spy(threads(("f", path), OWN), 7)) == function

    @pytest.mark.parametrize(
        ("path", "short"),
        [
            ("/usr/lib/python3.11/socket.py", "python3.11/socket.py"),
            ("/opt/conda/lib/python3.11/multiprocessing/queues.py", "python3.11/multiprocessing/queues.py"),
            ("/usr/lib64/python3.13t/re/__init__.py", "python3.13t/re/__init__.py"),
        ],
    )
    def test_a_file_of_the_standard_library_has_its_whole_name(self, path: str, short: str) -> None:
        assert read_py_spy(threads(("f", path)), 7).frames[0].file == short

    @pytest.mark.parametrize(
        "output", [b"", b"{}", b"[]", b"[" * 100_000, b'[{"frames": 3}]', b'[{"frames": []}]', b"\xff"]
    )
    def test_what_is_no_list_of_threads_is_no_stack(self, output: bytes) -> None:
        with pytest.raises(NoStack):
            read_py_spy(output, 7)

    def test_names_of_any_kind_become_short_and_printable(self) -> None:
        stack = read_py_spy(threads(*[("\x1b]0;pwned\x07" * 100, "\u202e" * 9000)] * 500), 7)
        assert len(stack.frames) == MOST_FRAMES
        assert all(f.function.isprintable() and f.file.isprintable() for f in stack.frames)
        assert all(len(f.function) <= 64 and len(f.file) <= 64 for f in stack.frames)


def is_own(path: str) -> bool:
    return read_py_spy(threads(("f", path)), 7).frames[0].is_own


class TestProgram:
    def test_a_program_that_is_missing_is_named(self) -> None:
        with pytest.raises(CannotRead, match="no-such-spy is not installed"):
            read_stack(os.getpid(), program="no-such-spy")

    def test_the_answer_of_the_program_is_the_stack(self, tmp_path: Path) -> None:
        answer = threads(("step", "/job/train.py"), pid=os.getpid()).decode()
        assert read_stack(os.getpid(), program=_stand_in(tmp_path, f"echo '{answer}'")).frames[0].function == "step"

    def test_a_main_thread_without_a_python_function_is_so_in_every_look(self, tmp_path: Path) -> None:
        """A look while it calls one may miss it."""
        none, one = threads(pid=os.getpid()).decode(), threads(("step", "/job/train.py"), pid=os.getpid()).decode()
        at_last = f"test -e {tmp_path}/asked && echo '{one}' || echo '{none}'; touch {tmp_path}/asked"

        assert read_stack(os.getpid(), program=_stand_in(tmp_path, f"echo '{none}'")) == NO_FUNCTION
        assert read_stack(os.getpid(), program=_stand_in(tmp_path, at_last)).frames[0].function == "step"

    def test_it_is_found_beside_the_python_that_runs_healthd_also_where_that_is_not_on_the_path(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As in an environment that was not activated, or one that pipx made."""
        answer = threads(("step", "/job/train.py"), pid=os.getpid()).decode()
        program = Path(_stand_in(tmp_path, f"echo '{answer}'"))
        monkeypatch.setattr(sys, "executable", str(tmp_path / "python3"))
        assert read_stack(os.getpid(), program=program.name).frames[0].function == "step"

    @pytest.mark.parametrize("body", ["exec sleep 100", "sleep 100 & sleep 100", "exec >&-; exec sleep 100"])
    def test_a_program_that_hangs_is_killed_with_its_children_at_the_deadline(self, body: str, tmp_path: Path) -> None:
        with pytest.raises(CannotRead):
            read_stack(os.getpid(), program=_stand_in(tmp_path, body), deadline_s=0.2)

    def test_endless_output_is_cut_off(self, tmp_path: Path) -> None:
        with pytest.raises(CannotRead, match="more than"):
            read_stack(os.getpid(), program=_stand_in(tmp_path, "exec yes"), deadline_s=20)

    def test_the_reason_of_a_failure_is_printable_and_short(self, tmp_path: Path) -> None:
        body = "printf '\\033[31mPermission denied\\n'; exit 1"
        with pytest.raises(CannotRead, match="Permission denied") as caught:
            read_stack(os.getpid(), program=_stand_in(tmp_path, body))
        assert str(caught.value).isprintable()

    def test_a_stopped_process_is_never_asked(self, tmp_path: Path) -> None:
        asked = tmp_path / "asked"
        with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
            os.kill(process.pid, signal.SIGSTOP)
            os.waitpid(process.pid, os.WUNTRACED)
            with pytest.raises(CannotRead, match="stopped"):
                read_stack(process.pid, program=_stand_in(tmp_path, f"touch {asked}"))
            process.kill()
        assert not asked.exists()


@pytest.mark.slow
class TestPySpy:
    def test_the_function_in_which_a_real_process_waits_is_found(self, waiting: subprocess.Popen[bytes]) -> None:
        stack = read_stack(waiting.pid)
        assert [frame.function for frame in stack.frames] == ["stuck", "<module>"]


@pytest.fixture
def waiting() -> Iterator[subprocess.Popen[bytes]]:
    script = "import sys\ndef stuck():\n    print(flush=True)\n    sys.stdin.read()\nstuck()"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def _stand_in(folder: Path, body: str) -> str:
    path = folder / "spy"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)
