"""What was ever seen of checkpoints is remembered: that files vanish is no reason to begin at step 0."""

from __future__ import annotations

import signal
import sys

import pytest

from healthd.core.api.model import Phase
from tests.e2e.driver import RunFolder

pytestmark = pytest.mark.slow

TEARS = """
import json, os, struct, sys
folder, name = sys.argv[1:]
rank, attempt = os.environ["RANK"], os.environ["HEALTHD_ATTEMPT"]
with open(folder + "/starts", "a") as file:
    file.write(attempt)
if rank == attempt == "0":
    os.makedirs(folder + "/checkpoints")
    header = json.dumps({"w": {"dtype": "F64", "shape": [1], "data_offsets": [0, 8]}}).encode()
    with open(folder + "/checkpoints/" + name, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
witness = os.open(folder + "/witness", os.O_WRONLY)
os.write(witness, f"waits {rank} {attempt}\\n".encode())
os.open(folder + "/gate", os.O_RDONLY)
"""
"""Saves one file, once, and it is torn."""


@pytest.mark.parametrize(
    ("name", "seen"), [("step-10.safetensors", "step 10"), ("model.safetensors", "model.safetensors")]
)
async def test_a_torn_file_that_its_owner_deletes_was_there(run_folder: RunFolder, name: str, seen: str) -> None:
    command = [sys.executable, "-I", "-S", "-c", TEARS, str(run_folder.folder), name]
    async with run_folder.life("--spares", "1", command=command) as life:
        await run_folder.all_wait(life, 0)
        run_folder.break_gpu(0)
        await life.says("recovery.phase", phase=Phase.HELD)
        life.signal(signal.SIGINT)
        await life.ended()
    (run_folder.checkpoints / name).unlink()
    async with run_folder.life("--spares", "1", command=command) as life:
        assert await life.ended() == 2, life.log

    assert f"{seen} was seen (is it mounted?)" in life.other
    assert "add --fresh" in life.other
    assert (run_folder.folder / "starts").read_text() == "00"


async def test_what_was_saved_before_the_user_stopped_the_run_was_there(run_folder: RunFolder) -> None:
    async with run_folder.life() as life:
        await run_folder.all_wait(life, 0)
        life.signal(signal.SIGINT)
        await life.says("run.stopped", at="step 4")
        await life.ended()
    for saved in run_folder.checkpoints.iterdir():
        saved.unlink()
    async with run_folder.life() as life:
        assert await life.ended() == 2, life.log

    assert "step 4 was seen (is it mounted?)" in life.other
    assert run_folder.starts() == [(0, 0)]
