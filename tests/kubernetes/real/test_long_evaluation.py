"""
A real gang evaluates for longer than the clock of checkpoints allows: one rank works as usual, the others wait for it,
and nothing is saved. Its agents see that, so it is not restarted. Then all its ranks wait for good, and it is.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
import yaml

from healthd.clock import SystemClock
from healthd.core.api import ANNOTATION_PROGRESS
from healthd.core.recovery.progress import Progress, has_rhythm
from healthd.local.demo.script import Script
from tests import quick_yaml
from tests.kubernetes.real.installation import Installation
from tests.kubernetes.real.rank_rhythms import WORKS, Seen, seen_of, until_rhythms_known
from tests.kubernetes.real.scenario import RANKS, RealStage
from tests.lab.control_plane import ControlPlane
from tests.lab.real.nodes import RealNodes

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.xdist_group("dead kubelet")]

SAVES = Script(ranks=RANKS, steps=10**9, every=200, pace=0.005)
"""A few seconds between two saves."""
ALLOWED = timedelta(seconds=20)
"""Without a step, by `hang.floor`. Five saves of this gang take less."""
FIRST_STEP = timedelta(minutes=3)
"""The same while a rank works."""
_USUAL = Path(__file__).parent / "deploy"


@pytest.fixture(scope="module")
def installation(
    writable_kernel_log: None,
    control_plane: ControlPlane,
    real_nodes: RealNodes,
    tmp_path_factory: pytest.TempPathFactory,
) -> Installation:
    """healthd, with a clock of checkpoints that is soon over."""
    overlay = with_clock(tmp_path_factory.mktemp("overlay"))
    installation = Installation(control_plane, real_nodes, overlay=overlay)
    installation.roll_out()
    return installation


def with_clock(folder: Path) -> Path:
    """The usual installation with these times."""
    (folder / "usual").symlink_to(_USUAL)
    own = folder / "own"
    own.mkdir()
    usual = quick_yaml.load((_USUAL / "healthd.yaml").read_text())
    times = {"floor": f"{ALLOWED.seconds}s", "factor": 2, "first_step": f"{FIRST_STEP.seconds}s"}
    generated = {
        "name": "healthd-config",
        "namespace": "healthd-system",
        "behavior": "replace",
        "files": ["healthd.yaml"],
    }
    (own / "healthd.yaml").write_text(yaml.safe_dump(usual | {"hang": times}))
    (own / "kustomization.yaml").write_text(
        yaml.safe_dump({"resources": ["../usual"], "configMapGenerator": [generated]})
    )
    return own


def test_gang_is_left_alone_in_a_long_evaluation_and_restarted_when_it_hangs(real_stage: RealStage) -> None:
    real_stage.train(SAVES, evaluates=True)
    until_rhythms_known(real_stage)
    real_stage.until("the ranks seen to work", lambda: seen_of(real_stage) == {"0": WORKS, "1": WORKS})
    real_stage.until("how often it saves known", lambda: has_rhythm(progress(real_stage)))

    evaluates, blocks = (real_stage.directory / name for name in ("evaluates", "blocks-0"))
    evaluates.touch()
    real_stage.until("a long evaluation", lambda: without_a_step(real_stage) > 3 * ALLOWED)
    in_evaluation = seen_of(real_stage), real_stage.recoveries()
    blocks.touch()
    evaluates.unlink()
    recovery = real_stage.until_phase("Recovered")

    assert in_evaluation == ({"0": WORKS, "1": Seen("silent", shows_polling=True)}, [])
    assert recovery["spec"]["cause"]["message"].startswith("no new step and no sign of life for ")
    assert set(real_stage.ranks_of(1)) == {"0", "1"}
    assert real_stage.overlaps == []


def progress(real_stage: RealStage) -> Progress:
    """As the controller knows it."""
    note = real_stage.job()["metadata"]["annotations"].get(ANNOTATION_PROGRESS, "{}")
    return msgspec.json.decode(note, type=Progress)


def without_a_step(real_stage: RealStage) -> timedelta:
    """Since when the controller knows no new one."""
    known = progress(real_stage).at
    return SystemClock().now() - known if known is not None else timedelta(0)
