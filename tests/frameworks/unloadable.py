"""
Run the scripts of `examples/trainers`, and leave each a newest checkpoint that holds by all checks and does not load.

`python -m tests.frameworks.unloadable [NAME ...]`, run by hand where the frameworks, healthd's own dependencies and
pytest are installed; no GPU is needed, the driver is the stand-in. Each script is run three times by `healthd run`:

- undisturbed
- its newest checkpoint is changed after some saves so that the framework's own loader refuses it, and all ranks are
  killed with -9
- the run is stopped after some saves, its newest checkpoint is changed in the same way, and the run is started again

In the last two healthd must still call the checkpoint good, try it twice, doubt it, go on from the one before it, and
end with the weights of the undisturbed run, bit for bit.
"""

# mypy: ignore-errors
from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch

from healthd.checkpoints.latest import DOUBTED, Checkpoint, Latest, latest
from tests.docs.trainers_page import Example, examples
from tests.e2e.driver import HealthdProcess, RunFolder
from tests.frameworks.runs import are_equal, finished, life_of, pid_of, saved, try_all
from tests.frameworks.snippets import PACKAGES, resumed_from, run, stage_of

SAVES = 3
"""Before the newest is changed: there is one before it, and one before that."""


def edit(file: Path, change: Callable[[dict], None]) -> None:
    """Save what *file* holds again, changed."""
    state = torch.load(file, weights_only=False)
    change(state)
    torch.save(state, file)


def rename_a_weight(checkpoint: Path) -> None:
    """As after the model was changed: a key that it does not have, and one that is missing."""
    edit(checkpoint, lambda state: state["model"].update({"layer.gain": state["model"].pop("layer.weight")}))


def shrink_the_optimizer(checkpoint: Path) -> None:
    """As after a parameter was added: groups of other sizes."""
    edit(checkpoint / "optimizer.pt", lambda state: state["param_groups"][0]["params"].pop())


def widen_a_weight(checkpoint: Path) -> None:
    """As after the model was made wider: another shape under the same name."""
    edit(checkpoint, lambda state: state["state_dict"].update({"net.layer.weight": torch.zeros(1, 16)}))


def widen_the_module(checkpoint: Path) -> None:
    """The same in the file where DeepSpeed keeps the model."""
    file = checkpoint / "mp_rank_00_model_states.pt"
    edit(file, lambda state: state["module"].update({"layer.weight": torch.zeros(1, 16)}))


CHANGES = {
    "ddp.py": rename_a_weight,
    "trainer.py": shrink_the_optimizer,
    "fit.py": widen_a_weight,
    "engine.py": widen_the_module,
}


def change_newest(example: Example, out: Path) -> str:
    """Change the newest checkpoint; returns its path. Raises SystemExit where healthd then refuses it."""
    before = newest(latest(out))
    CHANGES[example.name](Path(before.path))
    after = latest(out)
    if newest(after).path != before.path:
        raise SystemExit(f"healthd sees what was changed: {after.rejected[0].reason}")
    return before.path


def newest(answer: Latest) -> Checkpoint:
    """What healthd would resume from."""
    if answer.found is None:
        raise SystemExit(f"nothing holds: {answer.rejected}")
    return answer.found


async def killed(example: Example, stage: RunFolder) -> str:
    """All ranks are halted, so that nothing newer is saved, and die. Returns the checkpoint that was changed."""
    async with life_of(stage, example.options, example.script) as life:
        await life.lives_until(saved(stage.folder / "out", SAVES))
        pids = [pid_of(stage, rank) for rank in range(2)]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        changed = change_newest(example, stage.folder / "out")
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        await to_the_end(life, stage, changed)
    return changed


async def started_again(example: Example, stage: RunFolder) -> str:
    """The run is stopped by its user and started again. Returns the checkpoint that was changed meanwhile."""
    async with life_of(stage, example.options, example.script) as life:
        await life.lives_until(saved(stage.folder / "out", SAVES))
        life.signal(signal.SIGINT)
        await life.ended()
    changed = change_newest(example, stage.folder / "out")
    async with life_of(stage, example.options, example.script) as life:
        await to_the_end(life, stage, changed)
    return changed


async def to_the_end(life: HealthdProcess, stage: RunFolder, changed: str) -> None:
    """Raises SystemExit where healthd ends badly, or never says that it doubts what was changed."""
    await finished(life, stage.folder)
    said = [event["path"] for event in life.said if event.get("why") == DOUBTED]
    if said != [changed]:
        raise SystemExit(f"it doubts {said}, where {changed} does not load")


def why_wrong(example: Example, folder: Path, way: Callable) -> str:
    """What is wrong after one way; empty where nothing is."""
    with stage_of(example, folder) as stage:
        changed = asyncio.run(way(example, stage))
    first, *reported = resumed_from(stage)
    if first != "-" or reported[:-1] != [changed] * 2 or reported[-1] in ("-", changed):
        return f"it was said {[first, *reported]}, where {changed} does not load"
    if not are_equal(folder.parent / "undisturbed/weights.pt", folder / "weights.pt"):
        return "other weights than undisturbed"
    return ""


def try_out(name: str) -> str:
    """What is wrong; empty where nothing is."""
    example = examples()[name]
    with tempfile.TemporaryDirectory(prefix="healthd-doubted-") as scratch:
        folder = Path(scratch)
        run(example, folder / "undisturbed", kill=False)
        for way in (killed, started_again):
            if wrong := why_wrong(example, folder / way.__name__, way):
                return f"{way.__name__}: {wrong}"
    return ""


if __name__ == "__main__":
    sys.exit(try_all(__doc__, PACKAGES, try_out, "tried twice, doubted, and gone on from the one before"))
