"""What the processes below one process have used: a tree of /proc that is made up, and real processes."""

from __future__ import annotations

import itertools
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from healthd.core.hang.samples import Usage
from healthd.probes.process_stat import TICK
from healthd.probes.usage.main_thread import LONGEST_LOOK
from healthd.probes.usage.process_tree import LIST_EVERY, MOST, Beside, ProcessTree

ROOT = 100


class Proc:
    """A /proc in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process(ROOT)

    def scheduled(self, pid: int, ran: float, starved: float = 0.0) -> None:
        """How long the main thread of a process had a processor, and waited for one, in seconds."""
        (self.folder / str(pid) / "schedstat").write_text(f"{int(ran * 1e9)} {int(starved * 1e9)} 7\n")

    def waits(self, pid: int, line: str) -> None:
        """What the main thread of a process is asleep in."""
        (self.folder / str(pid) / "syscall").write_text(f"{line} 0x7ffe2c7a1e40 0x7f3f01d08c4e\n")

    def process(self, pid: int, parent: int = 0, *, state: str = "S", ticks: int = 0, switches: int = 0) -> None:
        """A process, made or changed."""
        folder = self.folder / str(pid)
        (folder / "task" / str(pid)).mkdir(parents=True, exist_ok=True)
        (folder / "task" / str(pid) / "children").touch()
        (folder / "stat").write_text(
            f"{pid} (a) b) {state} {parent} 0 0 0 0 0 7 0 0 0 {ticks} 0 9999 9999 20 0 1 0 5\n"
        )
        (folder / "io").write_text(f"rchar: {10 * ticks}\nwchar: 3\nsyscr: 1\nsyscw: 1\n")
        (folder / "status").write_text(f"Name:\ta\nvoluntary_ctxt_switches:\t{switches}\n")
        if parent:
            children = self.folder / str(parent) / "task" / str(parent) / "children"
            children.write_text(" ".join(dict.fromkeys([*children.read_text().split(), str(pid)])))

    def end(self, pid: int) -> None:
        """What it had open goes empty, as reads of a process that ended fail."""
        (self.folder / str(pid) / "stat").write_text("")
        shutil.rmtree(self.folder / str(pid))
        for children in self.folder.glob("*/task/*/children"):
            children.write_text(" ".join(word for word in children.read_text().split() if word != str(pid)))


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    """With the root of a tree, which has no child."""
    return Proc(tmp_path)


def tree(proc: Proc) -> ProcessTree:
    """The tree below the root."""
    return ProcessTree(ROOT, str(proc.folder))


def test_the_root_is_counted_only_where_it_is_one_of_them(proc: Proc) -> None:
    proc.process(ROOT, ticks=50)
    proc.process(101, ROOT, ticks=50)
    trees = tree(proc), ProcessTree(ROOT, str(proc.folder), with_root=True)
    for each in trees:
        each.read()
    proc.process(ROOT, ticks=60)
    proc.process(101, ROOT, ticks=90)
    grown = [used.cpu for each in trees if (used := each.read()) is not None]

    assert grown == pytest.approx([0.4, 0.5])


def test_a_rank_that_the_first_one_has_started_is_no_part_of_it(proc: Proc) -> None:
    for pid, parent in ((1, 0), (ROOT, 1), (101, ROOT), (102, 101), (103, ROOT), (104, 103)):
        proc.process(pid, parent, state="R" if pid in (ROOT, 104) else "S")
    beside = Beside(top=1, ranks=frozenset({ROOT, 101}), launchers=frozenset())

    used = ProcessTree(ROOT, str(proc.folder), with_root=True, beside=beside).read()

    assert used is not None
    assert used.states == "RSR"


def test_the_growth_of_all_descendants_is_added(proc: Proc) -> None:
    proc.process(101, ROOT, ticks=50)
    proc.process(102, 101, ticks=50)
    below = tree(proc)
    below.read()

    proc.process(101, ROOT, ticks=60, switches=3, state="R")
    proc.process(102, 101, ticks=70)
    used = below.read()

    assert used is not None
    assert used._replace(cpu=0) == Usage(switches=3, read=300, states="RS")
    assert used.cpu == pytest.approx(30 * TICK)


@pytest.mark.parametrize(("ticks", "states"), [(1, "R"), (60, "RT")])
def test_a_stopped_process_counts_where_it_has_done_a_part_of_the_work(proc: Proc, ticks: int, states: str) -> None:
    proc.process(101, ROOT, state="R", ticks=50_000)
    proc.process(102, 101, state="T", ticks=ticks)

    assert tree(proc).read() == Usage(states=states)


def test_what_a_process_used_before_it_was_found_does_not_count(proc: Proc) -> None:
    proc.process(101, ROOT, ticks=10**6)

    assert tree(proc).read() == Usage(states="S")


def test_nothing_ever_goes_back_when_a_process_ends(proc: Proc) -> None:
    proc.process(101, ROOT)
    proc.process(102, ROOT)
    below = tree(proc)
    below.read()
    proc.process(102, ROOT, ticks=40)
    below.read()
    proc.end(102)

    used = below.read()
    assert used is not None
    assert used.cpu == pytest.approx(40 * TICK)


def test_a_tree_without_a_process_is_not_known(proc: Proc) -> None:
    assert tree(proc).read() is None


def test_a_root_that_does_not_exist_is_not_known(proc: Proc) -> None:
    assert ProcessTree(12345, str(proc.folder)).read() is None


def test_a_process_that_is_started_later_is_found(proc: Proc) -> None:
    proc.process(101, ROOT)
    below = tree(proc)
    below.read()
    proc.process(102, 101)

    states = [used.states for _ in range(LIST_EVERY) if (used := below.read())]

    assert states[0] == "S"
    assert states[-1] == "SS"


def test_of_many_processes_some_are_read(proc: Proc) -> None:
    for pid in range(101, 101 + 2 * MOST):
        proc.process(pid, ROOT)

    used = tree(proc).read()

    assert used is not None
    assert len(used.states) == MOST


def test_files_that_must_not_be_read_count_nothing(proc: Proc) -> None:
    proc.process(101, ROOT)
    (proc.folder / "101" / "io").unlink()
    below = tree(proc)
    below.read()
    proc.process(101, ROOT, ticks=5)
    (proc.folder / "101" / "io").unlink()

    used = below.read()
    assert used is not None
    assert used.cpu == pytest.approx(5 * TICK)


def test_no_file_is_left_open(proc: Proc) -> None:
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    proc.process(101, ROOT)
    below = tree(proc)
    below.read()
    below.close()

    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


@contextmanager
def running(program: str) -> Iterator[subprocess.Popen[bytes]]:
    """A real process that has said a line, and its input."""
    argv = [sys.executable, "-I", "-S", "-c", program]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        try:
            yield child
        finally:
            child.send_signal(signal.SIGCONT)
            child.kill()


def until(tree: ProcessTree, is_reached: Callable[[Usage], bool]) -> Usage:
    """Read until it is so."""
    while True:
        used = tree.read()
        assert used is not None
        if is_reached(used):
            return used
        select.select([], [], [], 0.01)


@pytest.mark.slow
def test_a_real_process_that_is_stopped_shows_it() -> None:
    with running("print(flush=True); input()") as child:
        child.send_signal(signal.SIGSTOP)
        os.waitpid(child.pid, os.WUNTRACED)

        used = until(ProcessTree(os.getpid()), lambda used: "T" in used.states)

    assert "T" in used.states


@pytest.mark.slow
def test_a_real_process_that_spins_and_writes_uses_more_and_more() -> None:
    program = "import os\nprint(flush=True)\nwhile True: os.write(2, b'')"
    with running(program):
        used = until(ProcessTree(os.getpid()), lambda used: used.cpu > 0.05)

    assert used.calls > 10


def test_the_main_thread_of_the_leading_process_counts_and_neither_its_shell_nor_its_loaders(proc: Proc) -> None:
    for pid, parent, ran in ((101, ROOT, 0.1), (102, 101, 50.0), (103, 102, 90.0)):
        proc.process(pid, parent)
        proc.scheduled(pid, ran)
    below = tree(proc)
    below.read()

    proc.scheduled(101, 0.2)
    proc.scheduled(102, 50.5, 0.25)
    proc.scheduled(103, 91.0)
    used = below.read()

    assert used is not None
    assert (used.ran, used.starved) == pytest.approx((0.5, 0.25))


@pytest.mark.parametrize("text", ["", "1", "a b c", "-"])
def test_a_kernel_that_does_not_count_how_threads_are_scheduled_loses_nothing_else(proc: Proc, text: str) -> None:
    proc.process(101, ROOT)
    (proc.folder / "101" / "schedstat").write_text(text)
    below = tree(proc)
    below.read()

    proc.process(101, ROOT, switches=3)
    used = below.read()

    assert used is not None
    assert (used.switches, used.ran) == (3, 0)


SLEEPS = "230 0x1 0x1 0x7ffd5 0x0 0x0 0x0"
POLLS = "7 0x7ffd5 0x1 0xffffffff 0x0 0x0 0x0"
READS = "0 0x5 0x7ffd5 0x1000 0x0 0x0 0x0"


def known(proc: Proc, waits: str) -> ProcessTree:
    """A rank with a loader, whose processes have been read twice: it is known which one makes the steps."""
    for pid, parent, ran in ((101, ROOT, 50.0), (102, 101, 20.0)):
        proc.process(pid, parent)
        proc.scheduled(pid, ran)
        proc.waits(pid, waits if pid == 101 else SLEEPS)
    below = tree(proc)
    below.read()
    below.read()
    return below


def own_waits(below: ProcessTree) -> float:
    """What has been seen so far, in seconds."""
    used = below.read()
    assert used is not None
    return used.own_waits


def test_the_time_in_which_the_leading_process_sleeps_by_itself_is_seen(proc: Proc) -> None:
    below = known(proc, SLEEPS)
    for look in range(5):
        below.look(look / 10)
    proc.waits(101, "running")
    below.look(0.5)

    assert own_waits(below) == pytest.approx(0.4)


def test_how_often_the_leading_process_is_stopped_is_seen_and_not_of_its_loaders(proc: Proc) -> None:
    below = known(proc, SLEEPS)
    proc.process(102, 101, state="T")
    for state in "TSTS":
        proc.process(101, ROOT, state=state)
        used = below.read()

    assert used is not None
    assert used.stopped == 2


def test_a_wait_for_peers_is_no_wait_of_its_own(proc: Proc) -> None:
    below = known(proc, "202 0x7f36be 0x189 0x0 0x0 0x0 0xffffffff")
    for look in range(5):
        below.look(look / 10)

    assert own_waits(below) == 0


@pytest.mark.parametrize(("file", "seconds"), [("/data/shard-17.tar", 0.4), ("socket:[12]", 0.0)])
def test_a_read_is_its_own_where_the_open_file_is_one(proc: Proc, file: str, seconds: float) -> None:
    below = known(proc, READS)
    (proc.folder / "101" / "fd").mkdir()
    (proc.folder / "101" / "fd" / "5").symlink_to(file)
    for look in range(5):
        below.look(look / 10)

    assert own_waits(below) == pytest.approx(seconds)


def test_a_look_after_a_long_time_tells_of_a_short_one(proc: Proc) -> None:
    below = known(proc, SLEEPS)
    below.look(0.0)
    below.look(60.0)

    assert own_waits(below) == LONGEST_LOOK


def test_looks_before_a_read_and_after_the_end_of_a_rank_are_harmless(proc: Proc) -> None:
    below = tree(proc)
    below.look(0.0)
    below = known(proc, SLEEPS)
    proc.end(101)
    below.look(0.1)
    below.read()
    below.look(0.2)
    below.close()
    below.look(0.3)


def open_files() -> list[str]:
    """What this process has open."""
    return [str(each.readlink()) for each in Path("/proc/self/fd").iterdir() if each.is_symlink()]


def test_a_look_that_does_not_return_holds_up_no_read_and_no_end(proc: Proc) -> None:
    """A pipe that is opened to be read waits for one who writes, as the memory of a process may wait for its driver."""
    below = known(proc, POLLS)
    below.look(0.0)
    syscall, memory = (proc.folder / "101" / name for name in ("syscall", "mem"))
    os.mkfifo(memory)
    looking = threading.Thread(target=below.look, args=(0.1,), daemon=True)
    looking.start()

    assert own_waits(below) == 0
    below.close()
    assert looking.is_alive()
    assert str(syscall) in open_files()

    memory.write_text("")
    looking.join(60)
    assert not looking.is_alive()
    assert str(syscall) not in open_files()


def test_a_rank_whose_system_calls_must_not_be_seen_loses_nothing_else(proc: Proc) -> None:
    proc.process(101, ROOT)
    proc.scheduled(101, 5.0)
    below = tree(proc)
    below.read()
    below.look(0.0)
    below.look(0.1)
    proc.scheduled(101, 6.0)

    used = below.read()

    assert used is not None
    assert (used.ran, used.own_waits) == (1.0, 0.0)


@contextmanager
def rank_of(program: str) -> Iterator[ProcessTree]:
    """The tree of a real process below a shell, as a rank is below its shim. It has said a line."""
    argv = ["sh", "-c", '"$0" -I -S -c "$1"; :', sys.executable, program]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, start_new_session=True) as shell:
        assert shell.stdout is not None
        shell.stdout.readline()
        try:
            yield ProcessTree(shell.pid)
        finally:
            os.killpg(shell.pid, signal.SIGKILL)


def looks_at(below: ProcessTree) -> Iterator[float]:
    """What is seen of own waits after one look, two, and so on."""
    for number in itertools.count():
        below.look(number / 10)
        yield own_waits(below)
        select.select([], [], [], 0.01)


@pytest.mark.parametrize(
    "wait",
    ["import time; time.sleep(60)", "import multiprocessing as m; a, b = m.Pipe(False); a.poll(60)"],
    ids=["sleeps", "polls the pipe of its loader"],
)
def test_a_real_process_that_waits_for_its_own_shows_it(wait: str) -> None:
    with rank_of(f"print(flush=True); {wait}") as below:
        assert next(seen for seen in looks_at(below) if seen > 1) > 1


def test_a_real_process_that_polls_a_socket_may_wait_for_its_peers() -> None:
    with rank_of("import multiprocessing as m; a, b = m.Pipe(); print(flush=True); a.poll(60)") as below:
        assert max(itertools.islice(looks_at(below), 50)) == 0
