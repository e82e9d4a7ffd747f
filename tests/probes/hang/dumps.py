"""Dumps of torch's flight recorder as torch 2.15 writes them: pickles of protocol 2 without any class."""

from __future__ import annotations

import pickle
from typing import Any


def an_entry(number: int, name: str = "gloo:all_reduce", *, pending: bool = False, **fields: Any) -> dict[str, Any]:
    """One collective of the group of all ranks."""
    return {
        "frames": [{"name": "step", "filename": "train.py", "line": 40}],
        "record_id": number - 1,
        "pg_id": 0,
        "process_group": ("0", "default_pg"),
        "collective_seq_id": number,
        "p2p_seq_id": 0,
        "op_id": number,
        "profiling_name": name,
        "input_sizes": [[1000]],
        "input_dtypes": ["Float"],
        "state": "scheduled",
        "retired": not pending,
        "timeout_ms": 1_800_000,
        "is_p2p": False,
    } | fields


def a_dump(*entries: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """What a rank dumps that has entered *entries*."""
    return {
        "version": "2.10",
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"}},
        "comm_lib_version": "",
        "pg_status": {"0": {"last_enqueued_collective": len(entries), "last_completed_collective": len(entries) - 1}},
        "entries": list(entries),
    } | fields


def pickled(value: object) -> bytes:
    """*value* as torch pickles it."""
    return pickle.dumps(value, protocol=2)
