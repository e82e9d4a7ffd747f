"""A checkpoint that holds by all that can be seen, and that its gang cannot go on from."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from healthd.checkpoints.latest import DOUBTED
from healthd.core.recovery.phases.stopping import BAD_STATE
from tests.checkpoints.builders import safetensors_bytes
from tests.e2e.driver import RunFolder

pytestmark = pytest.mark.slow

TELL = 'echo "$HEALTHD_RESUME_STEP" >> told; test "$HEALTHD_RESUME_STEP" != 9'


@pytest.mark.parametrize(
    ("command", "steps"),
    [
        pytest.param(TELL, ["9", "9", "4"], id="it does not load"),
        pytest.param(f"{TELL} || exit {BAD_STATE}", ["9", "4"], id="it leads to a bad state"),
    ],
)
async def test_a_run_that_starts_from_one_goes_on_from_the_one_before_it(
    run_folder: RunFolder, command: str, steps: list[str]
) -> None:
    run_folder.checkpoints.mkdir()
    for step in (4, 9):
        (run_folder.checkpoints / f"step-{step:06}.safetensors").write_bytes(safetensors_bytes({"w": 100}))
    async with run_folder.life("--nproc", "1", command=["sh", "-c", command]) as life:
        await life.says(
            "checkpoint.rejected", path=str(run_folder.checkpoints / "step-000009.safetensors"), why=DOUBTED
        )

        assert await life.ended() == 0, life.log
    assert (run_folder.folder / "told").read_text().split() == steps


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """*folder* beneath a mount that takes no writes, where that is allowed."""
    if subprocess.run(["mount", "--bind", folder, folder], check=False, capture_output=True).returncode != 0:
        pytest.skip("no file system can be mounted here")
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", folder], check=True)
        yield
    finally:
        subprocess.run(["umount", folder], check=True)


async def test_one_is_not_doubted_when_its_gang_could_not_write(run_folder: RunFolder) -> None:
    run_folder.checkpoints.mkdir()
    for step in (4, 9):
        (run_folder.checkpoints / f"step-{step:06}.safetensors").write_bytes(safetensors_bytes({"w": 100}))
    save = 'echo "$HEALTHD_RESUME_STEP" >> told; touch checkpoints/new 2>/dev/null'
    with read_only(run_folder.checkpoints):
        async with run_folder.life("--nproc", "1", command=["sh", "-c", save]) as life:
            assert await life.ended() == 1, life.log

    assert f"it cannot write: {run_folder.checkpoints} is read-only: make it writable, or save elsewhere" in life.log
    assert (run_folder.folder / "told").read_text().split() == ["9"] * 4
