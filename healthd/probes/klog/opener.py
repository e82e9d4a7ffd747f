"""
Opens the kernel log for the agent: the one privileged part of healthd. All of it is in this file.

    python3 -I -S opener.py SOCKET UID [DEVICE]

Listens on the unix socket SOCKET. Each process of user UID that connects receives a descriptor of DEVICE (default
/dev/kmsg), newly opened and read-only, so that every reader has its own position in the log. Then the connection is
closed. Nothing is ever read from a connection, and nothing else is served. The answer is one byte: `k` with the
descriptor, or `e` and the error number when the device would not open. Any other user gets no answer.

Once it listens, it drops every right but that of opening the kernel log (CAP_SYSLOG).

Standard library only, and of that only what is built in or written in C: the usual `socket`, `signal` and `ctypes`
would double the memory of a process that waits on every node for a connection a month.
"""

import _ctypes
import _signal  # type: ignore[import-not-found]  # built in; typeshed does not know it
import _socket
import posix
import sys

USAGE = "usage: python3 -I -S opener.py SOCKET UID [DEVICE]"
KMSG = "/dev/kmsg"
NOBODY_UID = 65534
BACKLOG = 16

CAP_SYSLOG = 34
"""What opening /dev/kmsg needs where the sysctl kernel.dmesg_restrict is on (linux/capability.h)."""
LAST_CAP = 63
PR_SET_KEEPCAPS, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 8, 24, 38
"""linux/prctl.h"""
CAPABILITY_VERSION_3 = 0x20080522


def main(arguments: list[str]) -> int:
    """Serve until a signal. The exit code is 2 for wrong arguments, 1 when it cannot start."""
    if len(arguments) not in {2, 3} or not arguments[1].isdigit():
        return _complain(USAGE, code=2)
    path, uid, device = arguments[0], int(arguments[1]), [*arguments, KMSG][2]
    for number in (_signal.SIGTERM, _signal.SIGINT):
        _signal.signal(number, _leave)
    try:
        listener = listen(path, uid)
        refused = drop_rights()
    except OSError as error:
        return _complain(f"cannot listen on {path}: {error.strerror}")
    _complain(f"hands out {device} on {path} to user {uid}{f'; could not give up: {refused}' if refused else ''}")
    while True:
        serve_one(listener, uid, device)


def listen(path: str, uid: int) -> _socket.socket:
    """A socket at *path* that only user *uid* may connect to. Raises OSError."""
    try:  # noqa: SIM105 - contextlib is a library, see above
        posix.unlink(path)  # left by an earlier run
    except FileNotFoundError:
        pass
    listener = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    before = posix.umask(0o177)
    listener.bind(path)
    posix.umask(before)
    if posix.geteuid() == 0:
        give_to(uid, path)
    listener.listen(BACKLOG)
    return listener


def give_to(uid: int, path: str) -> None:
    """
    Make *uid* the owner of the file at *path*, and never of the target of a link there. Raises OSError.

    Programs that run as that user may write to the folder, and may have replaced the socket with a link meanwhile.
    """
    posix.chown(path, uid, -1, follow_symlinks=False)


def drop_rights() -> str:
    """Keep CAP_SYSLOG alone, as user nobody. Returns what was refused. A non-root process has nothing to drop."""
    if posix.geteuid() != 0:
        return ""
    refused = [] if _prctl(PR_SET_NO_NEW_PRIVS, 1) else ["no_new_privs"]
    for capability in range(LAST_CAP + 1):
        _prctl(PR_CAPBSET_DROP, capability)  # fails for numbers that this kernel does not have
    _prctl(PR_SET_KEEPCAPS, 1)
    try:
        posix.setgroups([])
        posix.setresgid(NOBODY_UID, NOBODY_UID, NOBODY_UID)
        posix.setresuid(NOBODY_UID, NOBODY_UID, NOBODY_UID)
    except PermissionError:  # a container without CAP_SETUID: it has fewer rights than root already
        refused.append("the user root")
    if not _keep_only(CAP_SYSLOG) and not _keep_only():
        refused.append("capabilities")
    return ", ".join(refused)


def serve_one(listener: _socket.socket, uid: int, device: str) -> None:
    """Answer the next connection."""
    try:
        connection, _ = listener._accept()  # type: ignore[attr-defined]  # noqa: SLF001 - what socket.accept calls
    except ConnectionAbortedError:
        return
    client = _socket.socket(fileno=connection)
    try:
        if peer_uid(client) == uid:
            client.setblocking(False)
            answer(client, device)
    except OSError:
        pass  # the client disconnected; it can connect again
    finally:
        client.close()


def peer_uid(client: _socket.socket) -> int:
    """The user who connected, as the kernel knows it (struct ucred: pid, uid, gid)."""
    credentials = client.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)
    return int.from_bytes(credentials[4:8], sys.byteorder)


def answer(client: _socket.socket, device: str) -> None:
    """Send a fresh descriptor of *device*, or why there is none."""
    try:
        descriptor = posix.open(device, posix.O_RDONLY | posix.O_NONBLOCK | posix.O_CLOEXEC)
    except OSError as error:
        client.sendall(b"e%d" % (error.errno or 0))
        return
    try:
        rights = descriptor.to_bytes(4, sys.byteorder)
        client.sendmsg([b"k"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])
    finally:
        posix.close(descriptor)


def _keep_only(*capabilities: int) -> bool:
    """Set effective and permitted capabilities to exactly these; False when that was refused."""
    mask = sum(1 << capability for capability in capabilities)
    low, high = (part.to_bytes(4, sys.byteorder) for part in (mask & 0xFFFFFFFF, mask >> 32))
    nothing = bytes(4)
    header = CAPABILITY_VERSION_3.to_bytes(4, sys.byteorder) + nothing
    return _call("capset", header, low + low + nothing + high + high + nothing)


def _prctl(option: int, value: int) -> bool:
    return _call("prctl", option, value, 0, 0, 0)


def _call(function: str, *arguments: int | bytes) -> bool:
    """Call a function of the C library. True when it returns 0."""
    address = _ctypes.dlsym(_ctypes.dlopen(None, 0), function)  # type: ignore[arg-type]  # None is the program itself
    return int(_ctypes.call_function(address, arguments)) == 0


def _leave(*_: object) -> None:
    """Signals need a handler: the first process of a container has no default action."""
    posix._exit(0)  # noqa: SLF001 - that is its name


def _complain(text: str, code: int = 1) -> int:
    posix.write(2, f"opener: {text}\n".encode())
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
