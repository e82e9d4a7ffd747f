"""What was listed and is gone when it is read is looked at once more: file servers keep lists, retention deletes."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from healthd.checkpoints.latest import Candidate, Checkpoint, verify
from healthd.checkpoints.stores.objects import ObjectPath
from tests.checkpoints.builders import a_sharded_step
from tests.checkpoints.stores.memory import MemoryStore

STALE = OSError(errno.ESTALE, "Stale file handle")


@pytest.fixture
def store() -> MemoryStore:
    """Empty, and answering."""
    return MemoryStore()


@pytest.fixture
def step(store: MemoryStore, tmp_path: Path) -> ObjectPath:
    """A whole step in it."""
    return store.add(a_sharded_step(tmp_path, 10))


def refusal_of(step: ObjectPath) -> str:
    outcome = verify(Candidate(path=step, step=10))
    return "" if isinstance(outcome, Checkpoint) else outcome.reason


@pytest.mark.parametrize("error", [STALE, FileNotFoundError(errno.ENOENT, "No such file or directory")])
def test_a_file_that_is_stale_once_is_read_in_the_next_read(
    store: MemoryStore, step: ObjectPath, error: OSError
) -> None:
    store.failing = [None, error]

    assert not refusal_of(step)


def test_a_file_that_stays_stale_is_reported_after_two_reads(store: MemoryStore, step: ObjectPath) -> None:
    store.failing = [STALE] * 10

    assert refusal_of(step).startswith("model.safetensors.index.json: changed while being read")
    assert len(store.opened) == 2


def test_an_error_of_the_store_itself_is_reported_at_once(store: MemoryStore, step: ObjectPath) -> None:
    store.failing = [OSError(errno.EIO, "Input/output error")] * 10

    assert refusal_of(step) == "model.safetensors.index.json: Input/output error"
    assert len(store.opened) == 1
