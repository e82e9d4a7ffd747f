"""
Keys of earlier versions. A file that still has one is refused, and the message says what to write instead.

Without this table an old key would be a word that does not exist, and the start would be refused without a way out.
"""

from __future__ import annotations

from collections.abc import Mapping


def _moved(to: str) -> str:
    return f"is `{to}` now: write the value there and remove this line"


def _constant(value: str) -> str:
    return f"is a constant now ({value}): remove this line"


def _below_host_root(path: str) -> str:
    return f"is {path} below `host_root` now: write `host_root`, such as `/host`, and remove this line"


REPLACED: Mapping[str, str] = {
    "recovery.breaker_restarts": _moved("breaker.restarts"),
    "recovery.breaker_others": _moved("breaker.per_other_namespace"),
    "recovery.breaker_window": _moved("breaker.window"),
    "recovery.breaker_share": _moved("breaker.unhealthy_share"),
    "recovery.breaker_nodes": _constant("3"),
    "recovery.breaker_fresh": _constant("1h"),
    "recovery.backoff_base": _constant("10s"),
    "recovery.spare_after": _constant("20s"),
    "hang.min_intervals": _constant("3"),
    "judge.app_repeats": "is not needed any more: `judge.app_distinct_jobs` alone says how many; remove this line",
    "judge.app_window": _constant("1d"),
    "checkpoints.volumes_at": _constant("/checkpoints"),
    "checkpoints.look_by_pod_every": _constant("5m"),
    "precheck.late_factor": _constant("3"),
    "precheck.late_floor": _constant("10m"),
    "precheck.first_within": _constant("6h"),
    "pods": f"holds no key any more: `pods.cgroups` {_below_host_root('`sys/fs/cgroup`')}",
    "probes.sys": _below_host_root("`sys`"),
    "probes.proc": _below_host_root("`proc`"),
    "probes.run": _below_host_root("`run`"),
}
"""Old key -> what to do, to follow the name of the key in a message."""
