"""
The shim: one small process between healthd and one rank, so that no process of the rank can outlive either of them.

It is started by file path (`python -I -S shim.py CONTROL UID LINGER CWD COMMAND…`) and uses only the standard library.
It is the subreaper of all processes that the rank starts: a process that forks twice, opens its own session and
ignores SIGTERM becomes its child when the parent dies. So "no child is left" is the proof that no process is left. The
rank's environment is marked with its pod's UID, the shim's own with another mark (see `marks`).

CONTROL is the descriptor of a stream socket to healthd. End of file on it means that healthd died: the shim kills all
processes at once. One message per line. From healthd: `stop SECONDS`. To healthd, in this order:

    started PID | failed ERRNO TEXT     the command runs, or could not be run
    exited CODE SIGNAL                  the rank ended; the processes that it started may still run
    gone                                no process is left

After a rank exits 0, the processes that it started have LINGER seconds to finish. After a rank fails, they are killed
at once, as when the first process of a container ends. The shim must
not read or write anything but its control socket and /proc.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
import time
from collections.abc import Collection

MARK = "HEALTHD_POD_UID"
SHIM_MARK = "HEALTHD_SHIM_OF"
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
LONGEST_NAP = 1.0
"""Seconds between scans while it ends what is left: an orphan of a process that cannot die arrives without a signal."""
IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
PYTHON_IGNORES = (signal.SIGPIPE, signal.SIGXFSZ)


def main(argv: list[str]) -> None:
    """Run the command of *argv* and stay until no process of it is left."""
    control, uid, linger, cwd, command = int(argv[1]), argv[2], float(argv[3]), argv[4], argv[5:]
    os.set_inheritable(control, False)
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    _prctl(PR_SET_PDEATHSIG, signal.SIGCONT)  # a stopped shim would not see that healthd died
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    wakeup = _wake_on_child()
    os.environ.pop(SHIM_MARK, None)
    os.environ[MARK] = uid
    rank, failure = _start(command, cwd)
    _report(control, failure or f"started {rank}")
    _Watch(control, wakeup, rank, linger).serve()
    os._exit(0)  # there is nothing to clean up, and healthd waits for this exit


class _Watch:
    """Waits for children, commands and the deadline, whatever comes first."""

    def __init__(self, control: int, wakeup: int, rank: int, linger: float) -> None:
        self._control = control
        self._wakeup = wakeup
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)
        self._poll.register(wakeup, select.POLLIN)
        self._rank = rank
        self._linger = linger
        self._deadline: float | None = None
        self._asked_to_stop = False
        self._signalled: set[int] = set()
        """The processes that got SIGTERM: many programs take a second SIGTERM as "drop everything"."""
        self._rank_is_gone = False
        self._nap = 0.01
        self._unread = b""

    def serve(self) -> None:
        while self._reap():
            if self._is_over():
                _signal_descendants(signal.SIGKILL)
            elif self._asked_to_stop and self._rank_is_gone:
                # Some processes were forked since. A shell's child that has not called exec yet loses the signal:
                # repeat it.
                _signal_descendants(signal.SIGTERM, spare=self._signalled)
            for fd, _ in self._poll.poll(self._patience()):
                if fd == self._wakeup:
                    os.read(self._wakeup, 4096)
                else:
                    self._obey()
        _report(self._control, "gone")

    def _reap(self) -> bool:
        """Reap every child that has ended. False: no child is left, so no descendant is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._rank:
                self._rank_ended(os.waitstatus_to_exitcode(status))

    def _rank_ended(self, code: int) -> None:
        _report(self._control, f"exited {code} 0" if code >= 0 else f"exited {128 - code} {-code}")
        self._rank_is_gone = True
        if not self._asked_to_stop:
            self._end_within(self._linger if code == 0 else 0.0)

    def _obey(self) -> None:
        try:
            data = os.read(self._control, 4096)
        except OSError:
            data = b""
        if not data:
            self._poll.unregister(self._control)
            self._asked_to_stop = True
            self._end_within(0.0)
            return
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            self._stop(float(line.removeprefix(b"stop ")))

    def _stop(self, grace: float) -> None:
        """Start the stop. A second stop can only shorten the first."""
        if grace > 0 and not self._asked_to_stop:
            self._signalled = _signal_descendants(signal.SIGTERM, group=self._rank)
            _signal_descendants(signal.SIGCONT, group=self._rank)  # a stopped process handles no signals
        self._asked_to_stop = True
        self._end_within(grace)

    def _end_within(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        self._deadline = deadline if self._deadline is None else min(self._deadline, deadline)

    def _is_over(self) -> bool:
        return self._deadline is not None and time.monotonic() >= self._deadline

    def _patience(self) -> float | None:
        """Milliseconds to wait for the next event. None: no limit."""
        if self._deadline is None:
            return None
        left = self._deadline - time.monotonic()
        if left > 0 and not (self._asked_to_stop and self._rank_is_gone):
            return left * 1000 + 1
        self._nap = min(LONGEST_NAP, self._nap * 2)
        return (min(left, self._nap) if left > 0 else self._nap) * 1000 + 1


def _start(command: list[str], cwd: str) -> tuple[int, str]:
    """Fork and exec. Returns the pid, and the error message (empty: it runs)."""
    failed, failure_pipe = os.pipe()
    shim = os.getpid()
    pid = os.fork()
    if pid == 0:
        _become(command, cwd, shim, failure_pipe)
    os.close(failure_pipe)
    with os.fdopen(failed, "rb") as answer:
        return pid, answer.read().decode(errors="replace")


def _become(command: list[str], cwd: str, shim: int, failure_pipe: int) -> None:
    """The child's side of the fork. Never returns."""
    try:
        os.setsid()
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != shim:  # the shim died before prctl above took effect
            os._exit(137)
        for number in (*IGNORED, *PYTHON_IGNORES):
            signal.signal(number, signal.SIG_DFL)
        os.chdir(cwd)
        os.execvp(command[0], command)
    except OSError as error:
        what = cwd if error.filename == cwd else command[0]
        os.write(failure_pipe, f"failed {error.errno} {what}: {error.strerror}".replace("\n", " ").encode())
    finally:
        os._exit(127)


def _wake_on_child() -> int:
    """A descriptor that becomes readable when a child ended."""
    wakeup, wake = os.pipe()
    os.set_blocking(wakeup, False)
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    return wakeup


def _signal_descendants(number: signal.Signals, *, group: int = 0, spare: Collection[int] = ()) -> set[int]:
    """
    Send a signal to every descendant but *spare*: first to the process group *group* at once, when given, then to the
    others one by one. Returns the descendants that existed.

    A pid may be reused between the scan and the signal. So each pidfd is opened first, and must then still be a
    descendant.
    """
    family = descendants(os.getpid())
    outside = [pid for pid in family if pid not in spare and (group == 0 or _stat(pid)[1] != group)]
    if group:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, number)
    for pid in outside:
        with contextlib.suppress(OSError):
            handle = os.pidfd_open(pid)
            try:
                if _stat(pid)[0] in family or _stat(pid)[0] == os.getpid():
                    signal.pidfd_send_signal(handle, number)
            finally:
                os.close(handle)
    return family


def descendants(root: int) -> set[int]:
    """The pids of all living descendants of process *root*."""
    found: set[int] = set()
    unseen = [root]
    while unseen:
        children = set(_children(unseen.pop())) - found
        unseen += children
        found |= children
    return found


def _children(pid: int) -> list[int]:
    """The children of every thread of *pid*. Empty when it has just ended."""
    if not os.access(f"/proc/self/task/{os.getpid()}/children", os.R_OK):  # a kernel without CONFIG_PROC_CHILDREN
        everybody = [int(entry.name) for entry in os.scandir("/proc") if entry.name.isdecimal()]
        return [child for child in everybody if _stat(child)[0] == pid]
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.scandir(f"/proc/{pid}/task"):
            with open(f"{thread.path}/children") as file:
                found += map(int, file.read().split())
    return found


def _stat(pid: int) -> tuple[int, int]:
    """Parent and process group of *pid*. (0, 0) when it has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return 0, 0
    return int(fields[1]), int(fields[2])


def _report(control: int, message: str) -> None:
    """Send one message to healthd. healthd may be dead: then the end of file arrives next."""
    with contextlib.suppress(OSError):
        os.write(control, message.encode() + b"\n")


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}) failed")


if __name__ == "__main__":
    main(sys.argv)
