"""
Run the demo: train once without faults, then once with faults under healthd.

Nothing here depends on the clock: each fault comes when the scene shows that its condition has happened.
"""

from __future__ import annotations

import asyncio
import sys
import uuid
from dataclasses import dataclass
from datetime import timedelta

from healthd.clock import Clock
from healthd.cluster.embedded import EmbeddedCluster
from healthd.core.config import Config
from healthd.local.demo.kernel_logs import Writable
from healthd.local.demo.scene import Note, Scene, Tone, Who
from healthd.local.demo.script import RECOVERY, RUN, DemoFolders, Script
from healthd.local.demo.undisturbed import TRAINER, train_undisturbed
from healthd.local.demo.watch import follow_training, read_cluster, watch_cluster
from healthd.local.gang import RunSpec
from healthd.local.machine.machine import OpenKernelLog, this_machine
from healthd.local.runtime import LocalRuntime
from healthd.local.state.folder import database, make_private

PATIENCE = timedelta(seconds=90)
"""On top of the pauses between all steps: a demo that has not ended by then never ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoInputs:
    """The inputs of one demo."""

    script: Script
    place: DemoFolders
    config: Config
    scene: Scene
    clock: Clock
    boot_id: str
    kernel: Writable
    open_kernel_log: OpenKernelLog


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoEnding:
    """The facts about the end of a demo that are not in the scene."""

    exit_code: int | None
    """The exit code of the gang. None when it had not ended."""
    broke_off: str
    """The condition that never came. Empty when the script ran to its end."""
    undisturbed: timedelta
    """The time of the run without faults, which does not pause between steps."""


async def play(stage: DemoInputs) -> DemoEnding:
    """The whole demo. No process of it is left at its end, however it ends. Raises TrainingFailed."""
    undisturbed = await _calm(stage)
    machine = this_machine(
        stage.script.slots, boot_id=stage.boot_id, open_kernel_log=stage.open_kernel_log, terminal=None
    )
    make_private(stage.place.state)
    path = database(stage.place.state)
    with EmbeddedCluster.open(path, clock=stage.clock, new_uid=lambda: str(uuid.uuid4())) as cluster:
        runtime = LocalRuntime(
            _run_spec(stage),
            stage.config,
            machine,
            cluster,
            stage.clock,
            announce_page=lambda url: _print(stage, f"live page: {url}"),
        )
        code, broke_off = await _perform(stage, runtime)
        stage.scene.see(await read_cluster(cluster))
    return DemoEnding(exit_code=code, broke_off=broke_off, undisturbed=undisturbed)


async def _calm(stage: DemoInputs) -> timedelta:
    script, began = stage.script, stage.clock.now()
    _print(stage, f"the same training without faults first: {script.steps} steps on {script.ranks} ranks")
    await train_undisturbed(script, stage.place)
    took = stage.clock.now() - began
    _print(
        stage, f"done in {took.total_seconds():.1f} s; now under healthd, a rest of {script.pace:g} s after each step"
    )
    return took


def _run_spec(stage: DemoInputs) -> RunSpec:
    script, place = stage.script, stage.place
    return RunSpec(
        name=RUN,
        command=[sys.executable, TRAINER, "--checkpoint", str(place.checkpoints), *script.story_arguments],
        nproc=script.ranks,
        spares=script.spares,
        checkpoint=place.checkpoints,
        state=place.state,
        working_dir=place.root,
        grace=RECOVERY.grace,
    )


async def _perform(stage: DemoInputs, runtime: LocalRuntime) -> tuple[int | None, str]:
    """
    Run the gang and the script at the same time. Returns the gang's exit code, and the condition that never came.
    """
    script = stage.script
    limit = PATIENCE.total_seconds() + 3 * script.steps * script.pace
    async with asyncio.TaskGroup() as group:
        helpers = [
            group.create_task(watch_cluster(runtime.cluster, stage.clock, stage.scene)),
            group.create_task(follow_training(stage.place, stage.clock, stage.scene)),
        ]
        explanation = group.create_task(play_script(stage))
        run = group.create_task(runtime.run())
        await asyncio.wait([run], timeout=limit)
        ended = run.done()
        runtime.stop()
        code = await run
        for task in (*helpers, explanation):
            task.cancel()
    return code if ended else None, stage.scene.waiting_for


async def play_script(stage: DemoInputs) -> None:
    """The faults, each when its condition holds."""
    script, scene = stage.script, stage.scene
    await scene.until("the first torn checkpoint", lambda s: s.training.has_saved(0, script.torn_at))
    _fault(stage, script.lost_gpu(), Tone.BAD)
    await scene.until("the end of the first recovery", lambda s: s.world.recovered(1))
    _fault(stage, script.bad_access(), Tone.PLAIN)
    blamed = script.node(script.blamed)
    await scene.until(f"the finding xid-31 on {blamed}", lambda s: s.world.finding(blamed, "xid-31") is not None)
    await scene.until("the end of the second recovery", lambda s: s.world.recovered(2))


def _fault(stage: DemoInputs, text: str, tone: Tone) -> None:
    stage.scene.note(Note(stage.clock.now(), Who.KERNEL, text, tone))
    stage.kernel.write(text)


def _print(stage: DemoInputs, text: str) -> None:
    stage.scene.note(Note(stage.clock.now(), Who.DEMO, text))
