"""The windows that an agent publishes of the GPUs of its node."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from math import nan

from healthd.core.hang.samples import Usage
from healthd.core.hang.silence import GangRhythm
from healthd.core.hang.work.gpus.gpu_windows import by_number, gpu_windows
from healthd.core.hang.work.work_share import WorkShare

EVEN = datetime.fromtimestamp(1_800_000_000, UTC)
"""A multiple of each length."""


class Node:
    """GPUs that are sampled each second."""

    def __init__(self) -> None:
        self.gang, self.windows, self.now = GangRhythm(200), gpu_windows(), EVEN
        self.sums: dict[str, Usage] = {}

    def run(self, seconds: int, *gpus: tuple[float, float]) -> None:
        """For so long each one uses its memory, and runs kernels, for these parts of the time."""
        for _ in range(seconds):
            self.now += timedelta(seconds=1)
            for number, (memory, kernels) in enumerate(gpus):
                sums = self.sums.get(f"gpu-{number}", Usage())
                self.sums[f"gpu-{number}"] = sums._replace(gpu=sums.gpu + memory, kernels=sums.kernels + kernels)
            self.gang.observe(dict(self.sums), self.now)
            self.windows.observe(self.gang, 1.0, self.now)


def test_a_window_has_what_the_median_gpu_does() -> None:
    node = Node()
    node.run(40, (0.3, 1.0), (0.4, 0.9), (0.5, 0.0))

    assert node.windows.newest
    assert (node.windows.newest.end, node.windows.newest.seconds) == (EVEN + timedelta(seconds=30), 15)
    assert (node.windows.newest.memory, node.windows.newest.idle) == ([0.4, 0.4], [0.1, 0.1])


def test_where_one_does_not_say_what_it_does_nothing_is_published() -> None:
    node = Node()
    node.run(40, (0.3, 1.0), (nan, nan))

    assert node.windows.newest is None


def test_the_controller_reads_longer_windows_as_the_means_of_those_that_are_parts_of_them() -> None:
    node = Node()
    node.run(15, (0.2, 1.0))
    node.run(16, (0.4, 0.8))
    assert node.windows.newest

    (window,) = by_number(node.windows.newest, 30).values()
    assert [round(each, 3) for each in window] == [*WorkShare(0.3, own_waits=0.1)]
    assert by_number(node.windows.newest, 20) == {}
