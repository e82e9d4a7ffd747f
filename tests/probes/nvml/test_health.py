"""What becomes of the words of the child: when there is a sample, which one, and why there is none."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from threading import Event

import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthd.core.diagnosis.readings import Sample
from healthd.probes.nvml.health import PAUSED, WITHOUT_LIBRARY, Nvml, NvmlPulse
from healthd.probes.nvml.process import ChildProcess, Pace, asking
from tests.probes.nvml.simulated_node import GPU0, GPU1, GPU2, NOW, QUICK, SimulatedNode, by_place, of
from tests.standin.nvml import StandIn


def test_an_xid_event_is_reported_when_it_comes(standin: StandIn, tmp_path: Path) -> None:
    world = SimulatedNode(standin, tmp_path, pace=Pace(every=timedelta(hours=1)))
    before = by_place(world.sample_until(lambda sample: sample.readings))
    standin.play("event 1 1 79", "event 2 1 79", "event 3 2 31")

    sample = world.sample_until(lambda sample: of(sample, GPU2, "nvml.xid.31"))
    world.probe.close()

    assert before[GPU1, "nvml.xid.79", ""] == 0
    assert of(sample, GPU1, "nvml.xid.79") == 2
    assert of(sample, GPU1, "nvml.temperature") == 41


def test_an_xid_is_counted_on_where_another_child_takes_over(world: SimulatedNode) -> None:
    world.sample_until(lambda sample: sample.readings)
    world.standin.play("event 1 1 79")
    world.sample_until(lambda sample: of(sample, GPU1, "nvml.xid.79") == 1)
    world.process.close()

    # The stand-in gives each process the event once.
    assert world.sample_until(lambda sample: of(sample, GPU1, "nvml.xid.79") == 2)


def test_a_storm_of_events_is_cut_short_until_the_next_sample(standin: StandIn, tmp_path: Path) -> None:
    world = SimulatedNode(standin, tmp_path, pace=Pace(every=timedelta(hours=1)))
    world.sample_until(lambda sample: sample.readings)
    standin.play(*(f"event {number} 0 13" for number in range(1, 151)))

    sample = world.sample_until(lambda sample: of(sample, GPU0, "nvml.xid.13") == 100)
    world.probe.wait(0.1)
    later = world.probe.sample(NOW)
    world.probe.close()

    assert later is sample


def test_what_is_read_now_and_then_stays_until_it_is_read_again(standin: StandIn, tmp_path: Path) -> None:
    pace = Pace(every=timedelta(milliseconds=20), whole=timedelta(hours=1))
    world = SimulatedNode(standin, tmp_path, pace=pace)
    world.sample_until(lambda sample: sample.readings)
    standin.play("value nvmlDeviceGetTemperature 0 77", "value nvmlDeviceGetComputeRunningProcesses 0 5")

    sample = world.sample_until(lambda sample: of(sample, GPU0, "nvml.temperature") == 77)
    world.probe.close()

    assert of(sample, GPU0, "nvml.processes") == 0
    assert of(sample, GPU0, "nvml.nvlink.replay", "nvlink 17") == 0


def test_the_same_sample_is_given_until_there_is_a_new_one(standin: StandIn, tmp_path: Path) -> None:
    world = SimulatedNode(standin, tmp_path, pace=Pace(every=timedelta(hours=1)))
    sample = world.sample_until(lambda sample: sample.readings)

    again = world.probe.sample(NOW + timedelta(seconds=1))
    world.probe.close()

    assert again is sample


def test_a_driver_that_hangs_is_reported_after_its_deadline_and_blames_no_gpu(world: SimulatedNode) -> None:
    world.values()
    world.standin.play("hang nvmlDeviceGetTemperature 3")
    world.wait_until_it_hangs()

    said = []
    for world.clock.ahead in range(13):
        said += world.responds()

    assert said[:10] == ["yes"] * 10
    assert said[12] == "no"
    assert "hangs" in world.probe.sample(NOW).trouble


@pytest.mark.slow
def test_a_driver_that_comes_back_is_believed(standin: StandIn, tmp_path: Path) -> None:
    world = SimulatedNode(standin, tmp_path, pace=Pace(first=timedelta(seconds=1)))
    standin.play("hang nvmlInit *")
    while world.responds() != ["no"]:
        world.probe.wait(0.01)
    standin.play()

    sample = world.sample_until(lambda sample: sample.readings)
    responds = world.responds()
    world.probe.close()

    assert of(sample, GPU0, "nvml.state") == "ok"
    assert responds == ["yes"]


def test_nothing_is_said_before_the_first_answer(world: SimulatedNode) -> None:
    world.standin.play("hang nvmlInit *")

    assert world.responds() == []
    assert not world.probe.sample(NOW).readings


@pytest.mark.parametrize(
    ("code", "why"), [(9, "Driver Not Loaded"), (18, "RM has detected an NVML/RM version mismatch.")]
)
def test_an_nvml_that_does_not_start_has_no_readings_and_says_why(world: SimulatedNode, code: int, why: str) -> None:
    world.standin.play(f"error nvmlInit * {code}")

    sample = world.sample_until(lambda sample: sample.empty.startswith("NVML: "))

    assert sample.empty == f"NVML: {why}"
    assert not sample.readings


def test_a_driver_that_crashes_takes_only_the_child_with_it(world: SimulatedNode) -> None:
    world.standin.play("crash nvmlDeviceGetPowerUsage")

    sample = world.sample_until(lambda sample: sample.trouble)

    assert sample.trouble == "NVML could not be asked: the process that asks it ended with status -6"


def test_what_a_library_prints_does_not_spoil_the_answers(world: SimulatedNode) -> None:
    world.standin.play("print {}")

    assert world.values()[GPU0, "nvml.state", ""] == "ok"


def test_an_address_that_is_none_is_a_reason(world: SimulatedNode) -> None:
    world.standin.play("value nvmlDeviceGetPciInfo 1 somewhere")

    sample = world.sample_until(lambda sample: sample.trouble)

    assert sample.trouble == "the output of NVML's child cannot be parsed: 'somewhere' is not a PCI address"


class ScriptedChild:
    """A process that says these lines, and nothing more."""

    trouble = ""
    responds = True
    rests_for: timedelta | None = None

    def __init__(self, *lines: bytes) -> None:
        self._lines = list(lines)

    def read_answers(self) -> list[bytes]:
        lines, self._lines = self._lines, []
        return lines

    def wait(self, seconds: float) -> None: ...

    def close(self) -> None: ...

    @property
    def is_running(self) -> bool:
        return bool(self._lines)

    def rest(self, time: timedelta, *, unless: Callable[[], bool]) -> None:
        self.rests_for = time


NUMBERS: st.SearchStrategy[object] = (
    st.none() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from([[], {}])
)


GPUS = st.lists(
    st.fixed_dictionaries(
        {"pci": st.sampled_from(["00000000:3B:00.0", "", "x"])},
        optional={
            "state": st.sampled_from(["ok", "lost", 1]),
            "values": st.dictionaries(st.text(max_size=5), NUMBERS, max_size=3),
            "links": st.dictionaries(st.sampled_from(["nvml.nvlink.state", "a"]), st.lists(NUMBERS), max_size=2),
        },
    ),
    max_size=3,
)


WORDS = st.fixed_dictionaries(
    {},
    optional={
        "gpus": GPUS,
        "node": st.dictionaries(st.text(max_size=5), NUMBERS, max_size=2),
        "whole": st.booleans() | st.none(),
        "xids": st.dictionaries(st.sampled_from(["0:1:2", "00000000:3B:00.0"]), st.just({"79": 1}), max_size=1),
        "trouble": st.text(max_size=5),
    },
)


@pytest.mark.slow
@given(st.lists(st.binary(max_size=30) | WORDS.map(lambda words: json.dumps(words).encode()), max_size=4))
def test_any_output_of_a_child_makes_a_sample(lines: list[bytes]) -> None:
    probe = Nvml(ScriptedChild(*lines))

    sample = probe.sample(NOW)

    assert sample.source == "nvml"
    assert not (sample.trouble and sample.readings)


def without_a_library(tmp_path: Path) -> Nvml:
    return Nvml(ChildProcess(QUICK, spawn=asking({"LD_LIBRARY_PATH": str(tmp_path)})))


def test_a_machine_without_the_library_has_no_readings_and_says_why(tmp_path: Path) -> None:
    probe = without_a_library(tmp_path)
    sample = probe.sample(NOW)
    while "answered" in sample.empty:
        probe.wait(0.1)
        sample = probe.sample(NOW)
    probe.close()

    assert sample == Sample(source="nvml", at=NOW, readings=[], empty="NVML: NVML Shared Library Not Found")


NO_LIBRARY = b'{"trouble": "NVML: NVML Shared Library Not Found", "code": 12}'


def test_a_machine_without_the_library_is_asked_rarely_and_read_rarely() -> None:
    process = ScriptedChild(NO_LIBRARY)
    probe = Nvml(process)
    probe.sample(NOW)

    assert process.rests_for == WITHOUT_LIBRARY
    assert (probe.every, NvmlPulse(probe).every) == (timedelta(seconds=10), timedelta(seconds=10))


def test_gpus_that_were_there_are_asked_for_and_read_as_before() -> None:
    gpu = b'{"gpus": [{"pci": "00000000:3B:00.0"}], "node": {"nvml.gpus": 1}}'
    process = ScriptedChild(gpu, NO_LIBRARY)
    probe = Nvml(process)
    probe.sample(NOW)

    assert process.rests_for is None
    assert (probe.every, NvmlPulse(probe).every) == (timedelta(seconds=2), timedelta(seconds=1))


def test_gpus_that_are_expected_are_asked_for_as_before() -> None:
    process = ScriptedChild(NO_LIBRARY)
    Nvml(process, expected=8).sample(NOW)

    assert process.rests_for is None


def test_while_the_gpus_are_reset_no_child_has_them_open_and_nothing_old_is_said_after(
    standin: StandIn, tmp_path: Path
) -> None:
    paused = Event()
    child = ChildProcess(QUICK, spawn=asking(standin.environ))
    probe = Nvml(child, is_paused=paused.is_set)
    pulse = NvmlPulse(probe)
    while not probe.sample(NOW).readings:
        probe.wait(0.1)

    paused.set()
    samples = [probe.sample(NOW), probe.sample(NOW)]
    beats = pulse.sample(NOW).readings
    is_running = child.is_running
    paused.clear()
    first = probe.sample(NOW)
    while not (last := probe.sample(NOW)).readings:
        probe.wait(0.1)
    probe.close()

    assert [sample.trouble for sample in samples] == [PAUSED, PAUSED]
    assert (beats, is_running) == ([], False)
    assert first.readings == []
    assert of(last, GPU0, "nvml.state") == "ok"
