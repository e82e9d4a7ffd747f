"""
Keys of earlier versions. A file that still has one is refused, and the message says what to write instead.

Without this table an old key would be a word that does not exist, and the start would be refused without a way out.
"""

from __future__ import annotations

from collections.abc import Mapping


def _moved(to: str) -> str:
    return f"is `{to}` now: write the value there and remove this line"


def _below_host_root(path: str) -> str:
    return f"is {path} below `host_root` now: write `host_root`, such as `/host`, and remove this line"


REPLACED: Mapping[str, str] = {
    "recovery.breaker_restarts": _moved("breaker.restarts"),
    "recovery.breaker_others": _moved("breaker.per_other_namespace"),
    "recovery.breaker_window": _moved("breaker.window"),
    "recovery.breaker_share": _moved("breaker.unhealthy_share"),
    "recovery.breaker_nodes": _moved("breaker.min_unhealthy_nodes"),
    "recovery.breaker_fresh": _moved("breaker.unhealthy_within"),
    "pods": f"holds no key any more: `pods.cgroups` {_below_host_root('`sys/fs/cgroup`')}",
    "probes.sys": _below_host_root("`sys`"),
    "probes.proc": _below_host_root("`proc`"),
    "probes.run": _below_host_root("`run`"),
}
"""Old key -> what to do, to follow the name of the key in a message."""
