"""
Messages that begin with, or contain, text that a process chose: its name, names of its files, a firewall's log prefix.

The kernel writes these messages itself, so their facility is the kernel's. Their beginning does not identify the
writer: `NVRM: GPU[23056]: segfault at …` is a process of that name. They are recognised by what the kernel adds, before
any grammar of a driver sees them. A name has COMM_LENGTH bytes at most, a file's name 255, and any byte may be in both.

Source: `arch/*/mm/fault.c`, `arch/*/kernel/{traps,signal,process}.c`, `kernel/{signal,fork,exit}.c`,
`mm/{page_alloc,vmalloc,memfd,memory,oom_kill}.c`, `fs/drop_caches.c`, `block/scsi_ioctl.c`, `net/socket.c`,
`kernel/sched/core.c` (a dump of tasks), `kernel/time/itimer.c`, `kernel/locking/lockdep.c`, `crypto/af_alg.c`,
`fs/crypto/policy.c`, `fs/btrfs/{volumes,super}.c`, `fs/fs_context.c`, `net/netfilter/nf_log_syslog.c`, and for
interfaces without a device `net/core`, `net/bridge`, `drivers/net/{bonding,team,vrf.c}` of Linux, old and new wordings.
"""

from __future__ import annotations

import re

from healthd.core.diagnosis.klog.message import Message, MessageKind

COMM_LENGTH = 15
"""The kernel keeps this many bytes of the name of a process or an interface."""

_MOUNT = (
    r"(?:[\w.-]{1,32}: (?:Unknown parameter|Deprecated parameter|Bad value for|Value of option) |BTRFS \w{1,16}: "
    r"|XFS: unknown mount |EXT4-fs: Unrecognized |NFS: (?:sec=|Value for )|libceph: (?:parse_ips |resolve '|bad option)"
    r"|CIFS: (?:VFS: )?(?:bad |Bad |Unknown |Invalid |Could not parse ))"
)
"""What the kernel prints about mount options, before it checks whether the process may mount at all."""

VGPU_MANAGER = r"nvidia-vgpu(?:d|-mgr)\[[0-9]{1,10}\]:"
"""Programs whose own lines are read beside the kernel's; none of their lines takes a node out of service."""

_NAME = rf".{{0,{COMM_LENGTH}}}?"
_WIRE = (
    r"(?:renamed from |entered |left |port \d|\(slave |received packet|topology change |selects |[Cc]aught |mixed "
    r"|hw csum |failed (?:to )?(?:insert|offload|sync|rename|move|reregister|(?:start|stop) userspace"
    r"|initialize vlan|kill vid|register for UDP)"
    r"|Failed to (?:change to mode|add (?:vlan ids|prefix route|FIB)|enable netpoll|send (?:options|port) |cycle )"
    r"|error (?:setting (?:MST|offload)|offloading )|Error: |name change rollback|(?:promiscuity|allmulti) touches"
    r"|set_features\(\) |option \S{1,32}: "
    r"|[Uu]nable to (?:set \S{1,32} as |remove nonexistent|rename link|change to the same)"
    r"|Cannot (?:create /proc/net|enslave )|no route to (?:arp|ns)_ip|Device \S{1,15} failed to |Could not send HSR"
    r"|A HSR |add vid failed|UDP tunnel port |Disabled Multicast RS|privacy stable address |NETDEV WATCHDOG: |PPP: )"
)
"""What the kernel prints about interfaces without a device: bridges, bonds, teams, VLANs, tunnels, and their stack."""
_BEGINS = re.compile(
    rf"(?!{VGPU_MANAGER}){_NAME}(?:"
    r" ?\[\d{1,10}\][: ]"  # segfault, unhandled signal, bad frame, memfd_create
    r"| \(\d{1,10}\)[: ]|\(\d{1,10}\): "  # drop_caches, undefined instruction, stack depth, block_dump
    r"|/\d{1,10}(?:: | (?:is |just |took |\[HC))| \(pid \d{1,10}\) "
    r"|:\d{1,10} (?:map pfn|freeing invalid|conflicting memory)"
    r"|: (?:page allocation |vmalloc|vmap |allocation failure|sending ioctl |potentially unexpected"
    r"|using deprecated /proc|Corrupted page table at |attempt to access beyond end of device|calling unsupported "
    r"|unhandled page fault )"
    r"| (?:uses? |used |is using |using unsupported default |forgot to set |trying to |invoked oom-killer"
    r"|calls setitimer|sent an empty control |wrote to .{1,64} when file "
    r"|tried to set rate|passes broken AGP|requested AGP)"
    r")"
    rf"|traps: .{{1,{COMM_LENGTH}}}?\[\d{{1,10}}\] "
    rf"|{_NAME} {{1,2}}[A-Z?] {{1,4}}(?:[0-9a-f]{{1,16}} |running task)"
    rf"|[^\s:/]{{1,{COMM_LENGTH}}}: {_WIRE}|{_MOUNT}",
    re.ASCII | re.DOTALL,
)
_ENDS = re.compile(
    r"\[[0-9a-f]{1,16}(?:,[0-9a-f]{1,16})?\+[0-9a-f]{1,16}\](?: likely on CPU [^\[\]]{1,64})?$"
    r"|: potentially unexpected fatal signal \d{1,3}\.?$",
    re.ASCII,
)
"""A crash ends with its mapping, a fatal signal with its number. Both may follow the name of a file."""
LONGEST_END = 160
_PACKET = re.compile(r"IN=\S{0,15} OUT=\S{0,15} ", re.ASCII)
"""A firewall adds the packet's interfaces to its own log prefix."""
LONGEST_QUOTE = 640
"""Names stand near the beginning: at most two of a path. A firewall's log prefix has 127 characters."""

_OOM_INVOKED = re.compile(r"(?P<process>.{1,15}?|[^:\[\]]{16,32}?) invoked oom-killer:(?:\s|$)", re.ASCII)
"""Longer names come from people who describe an OOM kill; a colon there belongs to another tag."""
_CRASH = re.compile(
    r"(?:(?P<process>.{1,15}?)\[(?P<pid>[0-9]{1,10})\]: segfault at "
    r"|traps: (?P<trapped>.{1,15}?)\[(?P<trapped_pid>[0-9]{1,10})\] (?:general protection |trap ))"
    r".{1,200}? in lib(?:nccl|nvidia-|cuda|cudart|cudnn|cublas|nvrtc|mlx5|ibverbs|efa|fabric)[\w.+-]{0,64}\[",
    re.ASCII,
)

_QUOTES = {
    "INFO: task ": r".{1,15}(?=:\d{1,10} )",
    "MCE: Killing ": r".{1,15}(?=:\d{1,10} )",
    "! [": r".{1,15}(?=:\d{1,10}\])",
    "SIGBUS to ": r".{1,15}(?=:\d{1,10} )",
    "forcibly killing ": r".{1,15}(?=:\d{1,10} )",
    "check signal to ": r".{1,15}(?=:\d{1,10}$)",
    "sending signal to ": r".{1,15}(?=:\d{1,10}: )",
    "user space address ": r"[0-9a-f]{1,16} in .{1,15}$",
    "for open file ": r".{1,512}(?=, error = )",
    "NFS: directory ": r".{1,512}(?= contains a readdir loop)",
    "failure path=": r".{1,512}(?= result=)",
    "ceph: dentry ": r".{1,512}(?= async unlink )",
    "in process ": r".{1,15}(?= {1,2}pfn:)",
    "while atomic: ": r".{1,15}(?=/\d)",
    "non-blocking section: ": r".{1,15}(?=/\d)",
    "] code: ": r".{1,15}(?=/\d)",
    "JBD2: ": r".{1,15}(?= wants too many credits)",
    "XFS: ": r".{1,15}(?=\(\d)",
    ": comm ": r".{1,15}(?=:)",
    ": path ": r".{1,512}(?=: )",
    "device label ": r".{1,256}(?= devid \d)",
    " scanned by ": r".{1,15}(?= \(\d)",
    "the client '": r".{1,15}(?=')",
    "has the version ": r".{1,64}(?=, but)",
    "has version ": r".{1,64}(?=, but)",
}
"""Where the kernel and drivers quote a process, or a program's own text: by the words before it."""
_CHOSEN = re.compile("|".join(f"({re.escape(head)}){name}" for head, name in _QUOTES.items()), re.ASCII | re.DOTALL)


def begins_with_a_name(text: str) -> bool:
    """Whether a process may have chosen the beginning of *text*, so that no driver's grammar may be tried on it."""
    end = max(0, len(text) - LONGEST_END)
    return bool(_BEGINS.match(text) or _ENDS.search(text, end) or _PACKET.search(text, 0, LONGEST_QUOTE))


def parse_process(text: str) -> Message | None:
    """Parse a message that begins with the name of a process: out of memory, or a crash in a library of GPUs."""
    if found := _OOM_INVOKED.match(text):
        return Message(kind=MessageKind.OOM, text=text, process=found["process"])
    if found := _CRASH.match(text):
        pid, process = found["pid"] or found["trapped_pid"], found["process"] or found["trapped"]
        return Message(kind=MessageKind.CRASH, text=text, pid=int(pid), process=process)
    return None


def without_names(text: str) -> str:
    """*text* without what processes chose, for all decisions based on words."""
    if not any(head in text for head in _QUOTES):
        return text
    head = _CHOSEN.sub(lambda found: f"{found[found.lastindex or 0]}…", text[:LONGEST_QUOTE])
    return head + text[LONGEST_QUOTE:]
