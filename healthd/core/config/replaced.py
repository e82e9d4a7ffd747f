"""
Keys of earlier versions. A file that still has one is refused, and the message says what to write instead.

Without this table an old key would be a word that does not exist, and the start would be refused without a way out.
"""

from __future__ import annotations

from collections.abc import Mapping


def _below_host_root(path: str) -> str:
    return f"is {path} below `host_root` now: write `host_root`, such as `/host`, and remove this line"


REPLACED: Mapping[str, str] = {
    "pods": f"holds no key any more: `pods.cgroups` {_below_host_root('`sys/fs/cgroup`')}",
    "probes.sys": _below_host_root("`sys`"),
    "probes.proc": _below_host_root("`proc`"),
    "probes.run": _below_host_root("`run`"),
}
"""Old key -> what to do, to follow the name of the key in a message."""
