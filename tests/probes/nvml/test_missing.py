"""GPUs that do not answer, do not say who they are, or are not listed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.probes.nvml.simulated_node import GPU0, GPU1, GPU2, SimulatedNode, of
from tests.standin.nvml import StandIn


@pytest.mark.parametrize(("code", "state"), [(15, "lost"), (16, "reset-required"), (999, "error")])
def test_a_gpu_that_does_not_answer_is_reported_and_does_not_hide_the_others(
    world: SimulatedNode, code: int, state: str
) -> None:
    world.values()
    world.standin.play(f"error * 1 {code}")

    look = world.sample_until(lambda look: of(look, GPU1, "nvml.state") == state)

    assert of(look, GPU0, "nvml.state") == "ok"
    assert of(look, GPU1, "nvml.temperature") is None
    assert of(look, GPU1, "nvml.xid.79") == 0


def test_a_gpu_that_was_reset_is_well_again(world: SimulatedNode) -> None:
    world.standin.play("error * 1 16")
    world.sample_until(lambda look: look.readings)
    world.standin.play()

    look = world.sample_until(lambda look: of(look, GPU1, "nvml.state") == "ok")

    assert of(look, GPU1, "nvml.temperature") == 41


def test_a_gpu_that_can_not_even_be_named_is_counted(world: SimulatedNode) -> None:
    world.standin.play("error nvmlDeviceGetHandleByIndex 1 999")

    values = world.values()

    assert values["node", "nvml.gpus.unreadable", ""] == 1
    assert (GPU1, "nvml.state", "") not in values


def give(root: Path, *gpus: str, nodes: int = 8) -> None:
    """The kernel's driver has these GPUs, and there are so many device nodes."""
    (root / "dev").mkdir()
    for minor, gpu in enumerate(gpus):
        folder = root / "proc/driver/nvidia/gpus" / gpu
        folder.mkdir(parents=True)
        (folder / "information").write_text(f"Model: \t\t NVIDIA H100\nDevice Minor: \t {minor}\n")
        if minor < nodes:
            (root / f"dev/nvidia{minor}").touch()


@pytest.mark.parametrize(("code", "state"), [(15, "lost"), (16, "reset-required"), (999, "error")])
def test_a_gpu_that_does_not_say_which_it_is_must_be_the_one_that_is_left(
    world: SimulatedNode, code: int, state: str
) -> None:
    give(world.root, GPU0, GPU1, GPU2)
    world.standin.play("gpus 3", f"error nvmlDeviceGetHandleByIndex 1 {code}")

    values = world.values()

    assert values[GPU1, "nvml.state", ""] == state
    assert values[GPU1, "nvml.listed", ""] == "yes"
    assert values["node", "nvml.gpus.unreadable", ""] == 0


def test_no_gpu_is_blamed_where_two_could_be_meant(world: SimulatedNode) -> None:
    give(world.root, GPU0, GPU1, GPU2)
    world.standin.play("gpus 2", "error nvmlDeviceGetHandleByIndex 1 15")

    values = world.values()

    assert values["node", "nvml.gpus.unreadable", ""] == 1
    assert (GPU1, "nvml.state", "") not in values


def test_a_gpu_that_the_driver_has_and_nvml_does_not_list_is_missing(world: SimulatedNode) -> None:
    give(world.root, GPU0, GPU1, GPU2)
    world.standin.play("gpus 2")

    values = world.values()

    assert values[GPU1, "nvml.listed", ""] == "yes"
    assert values[GPU2, "nvml.listed", ""] == "no"


def test_a_gpu_that_a_container_was_not_given_is_not_missing(world: SimulatedNode) -> None:
    give(world.root, GPU0, GPU1, GPU2, nodes=2)
    world.standin.play("gpus 2")

    assert (GPU2, "nvml.listed", "") not in world.values()


def test_a_gpu_that_an_operator_excluded_is_not_missing(world: SimulatedNode) -> None:
    give(world.root, GPU0, GPU1, GPU2)
    with (world.root / "proc/driver/nvidia/gpus" / GPU2 / "information").open("a") as information:
        information.write("GPU Excluded:\t Yes\n")
    world.standin.play("gpus 2")

    assert (GPU2, "nvml.listed", "") not in world.values()


def test_a_gpu_that_nvml_hides_from_us_is_neither_missing_nor_unreadable(world: SimulatedNode) -> None:
    give(world.root, GPU0, GPU1, GPU2)
    world.standin.play("gpus 3", "error nvmlDeviceGetHandleByIndex 2 4")

    values = world.values()

    assert (GPU2, "nvml.listed", "") not in values
    assert values["node", "nvml.gpus.unreadable", ""] == 0


def test_a_gpu_that_was_there_before_and_is_gone_is_missing(world: SimulatedNode) -> None:
    world.values()
    world.standin.play("gpus 2", "error * 1 15")
    world.sample_until(lambda look: of(look, GPU1, "nvml.state") == "lost")
    world.standin.play("gpus 1")

    look = world.sample_until(lambda look: of(look, GPU1, "nvml.listed") == "no")

    assert of(look, GPU0, "nvml.listed") == "yes"


def test_how_many_gpus_there_should_be_is_reported_beside_how_many_there_are(standin: StandIn, tmp_path: Path) -> None:
    world = SimulatedNode(standin, tmp_path, expected=9)

    values = world.values()
    world.probe.close()

    assert values["node", "nvml.gpus", ""] == 8
    assert values["node", "nvml.gpus.expected", ""] == 9
