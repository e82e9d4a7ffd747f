"""
What is usual for one member: its levels of activity and its period, learned from its own samples alone.

A member that makes steps uses a processor and, beside it, something else: it waits for peers and gives up its
processor, touches new memory, reads data, prints. A member that waits in a loop uses a processor and nothing else.

Where its GPUs are known they tell more: while they work it works, whatever its processors do. Once they have stopped,
a busy processor alone is no work.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from math import isnan
from operator import mul
from typing import NamedTuple

from healthd.core.hang.samples import Rates, SampleRing

LEARNED_FROM = 45
"""Samples before anything is judged: loading and compiling come first."""
WINDOW = 180
"""Samples that a rhythm is learned from, as far as there are so many."""
LONGEST_LAG = WINDOW // 3
"""Samples: a period is believed that was seen three times."""
ALIKE = 0.35
"""The autocorrelation at which a lag counts as a period, above what is common to all shorter lags: a trend is none."""
STEADY = 0.5
"""Samples that all reach this share of their mean show no period longer than two of them."""
FEW = 3
STEADY_SUMS = 0.35
"""The same of sums of up to `FEW` neighbours: a step takes no longer. Steps of 1.1 s leave out one sample in eleven,
and such a beat is no period: sums of two all show half of their mean at least."""
SHARE = 0.2
"""Of the mean: a signal below it has stopped. A throttled job slows down to a third, but not to a fifth."""
DOUBLED = 2.5
"""A member whose processor time differs by more between two halves of its samples still starts up."""
MUCH_IO = 64 * 1024.0
"""Bytes a second that count as work without any processor time: data is loaded, or a checkpoint is written."""
NOISE: Mapping[str, float] = {
    "cpu": 0.004,
    "switches": 1.0,
    "faults": 5.0,
    "calls": 1.0,
    "network": 4096.0,
    "system": 0.004,
    "gpu": 0.004,
}
"""Rates that an idle process reaches with its background threads. A signal whose mean is below tells nothing."""
MOSTLY = 0.75
"""Of the samples of a signal have to be known for what is usual to be learned from them."""
SLEEPS = 0.05
"""Of the usual time of a main thread. One that spins while it waits hardly sleeps at all."""
AWAKE = 0.5
"""Of the time of a sample. A main thread that waits asleep looks now and then whether something has come."""
FEWEST_SIGNS = 2
"""Signals beside processor time by which it is seen whether a member only polls."""


class Activity(StrEnum):
    """What one sample of a member shows."""

    WORKING = "working"
    SPINNING = "spinning"
    """It uses a processor, and everything that usually comes with it has stopped."""
    IDLE = "idle"
    """It uses next to nothing of what it usually uses."""


class Rhythm(NamedTuple):
    """What is usual for a member."""

    means: Mapping[str, float]
    """The usual rate of each signal that tells something, per second."""
    floors: Mapping[str, float]
    """The rates below which each of them has stopped."""
    highest: Rates
    """The highest sample of each signal."""
    moved: float
    """Bytes a second, read and written, while nothing is saved. The highest sample may be of a save."""
    period: float
    """Seconds between two steps. At least the two samples that a step needs to be seen."""
    gap: float
    """Seconds without work that are usual: the second longest time. The longest may be a pause that comes once."""
    asleep: float = 0.0
    """
    The share of the time in which its main thread slept for others, as far as is known. 0: also where it is not, or it
    has a GPU.
    """

    @property
    def sleeps_to_wait(self) -> bool:
        """Whether it is known to be asleep while it waits for others."""
        return self.asleep >= SLEEPS

    def shows_to_compute(self, used: Rates) -> bool:
        """Whether its main thread is awake in a sample, and would not be while it waits for others."""
        return self.sleeps_to_wait and used.ran + used.starved >= AWAKE

    @property
    def shows_polling(self) -> bool:
        """Whether two signals beside processor time, or its GPUs, would show that it only polls."""
        return "gpu" in self.means or len(self.means.keys() - {"cpu"}) >= FEWEST_SIGNS


def learn(
    ring: SampleRing, count: int, interval: float = 1.0, *, signals: Collection[str] = NOISE.keys()
) -> Rhythm | None:
    """
    The rhythm that the newest *count* samples show in *signals*, *interval* seconds apart. None: too few, not steady
    yet, or idle.
    """
    count = min(len(ring), count)
    windows = (min(count, WINDOW), LEARNED_FROM) if count >= LEARNED_FROM else ()
    window = next((each for each in windows if _has_settled(ring.newest("cpu", each))), 0)
    if not window:
        return None
    means = {name: _usual(values) for name in signals if (values := _known(ring.newest(name, window)))}
    means = {name: mean for name, mean in means.items() if mean >= NOISE[name]}
    if not means:
        return None
    highest = Rates(*(max(ring.newest(name, window)) for name in Rates._fields))
    moved = _least([a + b for a, b in zip(ring.newest("read", window), ring.newest("written", window), strict=True)])
    floors = {name: max(SHARE * mean, NOISE[name]) for name, mean in means.items()}
    rhythm = Rhythm(means, floors, highest, moved, 0.0, 0.0)
    *stretches, present = _stretches(ring, window, rhythm)
    gap = sorted([0, 0, *stretches])[-2]
    if present > gap + 1:
        return None
    lag = _lag_of([_known(ring.newest(name, window)) for name in _shows_steps(means, gap)])
    return rhythm._replace(period=interval * max(lag, 2), gap=interval * gap, asleep=_asleep(ring, window))


def classify(sample: Rates, rhythm: Rhythm) -> Activity:
    """What one sample of a member shows, by what is usual for it."""
    floors = rhythm.floors
    if _loads_or_saves(sample, rhythm) or ("gpu" in floors and sample.gpu >= floors["gpu"]):
        return Activity.WORKING
    if "cpu" in floors and sample.cpu < floors["cpu"]:
        return Activity.IDLE
    others = [name for name in floors if name not in {"cpu", "gpu"}]
    running = sum(getattr(sample, name) >= _floor(name, sample, rhythm) for name in others)
    gpus_stopped = "gpu" in floors and sample.gpu < floors["gpu"]  # not where that is not known
    if 2 * running >= len(others) and not (gpus_stopped and len(others) < FEWEST_SIGNS):
        return Activity.WORKING
    return Activity.SPINNING if sample.cpu >= NOISE["cpu"] else Activity.IDLE


def _floor(name: str, sample: Rates, rhythm: Rhythm) -> float:
    """
    The rate of one signal below which it has stopped. Time in the kernel is a part of processor time: a member that
    uses more than usual of the one does so of the other, and a loop has 1 % of its time there, for interrupts.
    """
    floor, usual = rhythm.floors[name], rhythm.means.get("cpu", 0.0)
    return floor * max(1.0, sample.cpu / usual) if name == "system" and usual else floor


def is_much_more(rhythm: Rhythm, before: Rhythm) -> bool:
    """Whether it uses so much more of a processor that *before* would be silence."""
    usual = before.means.get("cpu", NOISE["cpu"])
    return rhythm.means.get("cpu", 0.0) * SHARE > usual


def moves_much(sample: Rates, rhythm: Rhythm) -> bool:
    """Whether it moves data as it usually does, and enough to be at work with nothing else."""
    return sample.read + sample.written >= max(SHARE * rhythm.moved, MUCH_IO)


def _loads_or_saves(sample: Rates, rhythm: Rhythm) -> bool:
    """It moves data as it usually does, or touches more new memory than ever: a new kind of work has begun."""
    return moves_much(sample, rhythm) or sample.faults >= max(rhythm.highest.faults, 100.0)


def _has_settled(cpu: Sequence[float]) -> bool:
    """Whether both halves used about as much."""
    half = len(cpu) // 2
    first, second = _mean(cpu[:half]), _mean(cpu[half:])
    return max(first, second) <= max(DOUBLED * min(first, second), 2 * NOISE["cpu"])


def _asleep(ring: SampleRing, count: int) -> float:
    """A main thread that waits for its GPU mostly spins, whatever else it waits for asleep."""
    if any(value != 0 for value in ring.newest("gpu", count)):  # or it is not known
        return 0.0
    ran, starved, own_waits = (_mean(ring.newest(name, count)) for name in ("ran", "starved", "own_waits"))
    return max(0.0, 1.0 - ran - starved - own_waits) if ran else 0.0


def _known(values: Sequence[float]) -> Sequence[float]:
    """With their mean in the place of those that are not known. Empty: these are too many."""
    known = [value for value in values if not isnan(value)]
    if len(known) == len(values):
        return values
    if len(known) < MOSTLY * len(values):
        return ()
    mean = _mean(known)
    return [mean if isnan(value) else value for value in values]


def _usual(values: Sequence[float]) -> float:
    """The lower mean of the two halves: what only the start did is not usual."""
    half = len(values) // 2
    return min(_mean(values[:half]), _mean(values[half:]))


def _least(values: Sequence[float]) -> float:
    """The lowest mean of the four quarters: a save is in one of them, or in two."""
    quarter = len(values) // 4
    return min(_mean(values[at : at + quarter]) for at in range(0, 4 * quarter, quarter))


def _stretches(ring: SampleRing, count: int, rhythm: Rhythm) -> list[int]:
    """How many samples without work there were between two with work, in order. The last stretch is the present."""
    stretches = [0]
    for values in zip(*(ring.newest(name, count) for name in Rates._fields), strict=True):
        if classify(Rates(*values), rhythm) is Activity.WORKING:
            stretches.append(0)
        else:
            stretches[-1] += 1
    return stretches


def _shows_steps(means: Mapping[str, float], gap: int) -> list[str]:
    """
    The signals that may show the period. A member that usually does nothing but use a processor for longer than `FEW`
    samples polls while it waits: its processor time is steady, however long a step takes.
    """
    signals = ["gpu", "switches" if "switches" in means else "faults", "calls"]
    return [name for name in (["cpu"] if gap <= FEW else []) + signals if name in means]


def _lag_of(signals: Sequence[Sequence[float]]) -> int:
    """
    The longest lag at which a signal repeats itself; 0: none does. Up to `FEW`: one shows a step in so many samples.

    Lags are of sums of two: steps of 3.5 s are three samples apart or four, and would repeat themselves after seven.
    """
    for count in range(1, FEW + 1):
        share = STEADY if count == 1 else STEADY_SUMS
        if any(_is_steady(_sums(values, count), share) for values in signals):
            return count
    return max((_lag(_sums(values, 2)) for values in signals), default=0)


def _sums(values: Sequence[float], count: int) -> Sequence[float]:
    """Of *count* neighbours each."""
    return [sum(values[at : at + count]) for at in range(len(values) - count + 1)]


def _is_steady(values: Sequence[float], share: float) -> bool:
    """Whether all but a few reach this share of the mean."""
    return min(sorted(values)[len(values) // 20 :]) >= share * _mean(values)


def _lag(values: Sequence[float]) -> int:
    """The first lag at which a signal repeats itself, in samples. 0: none, it is irregular."""
    mean = _mean(values)
    centred = [value - mean for value in values]
    power = sum(map(mul, centred, centred))
    if not power:
        return 0
    lags = min(LONGEST_LAG, len(values) // 3)
    alike = [sum(map(mul, centred, centred[lag:])) / power for lag in range(lags + 2)]
    peaks = (lag for lag in range(2, lags + 1) if alike[lag - 1] <= alike[lag] >= alike[lag + 1])
    return next((lag for lag in peaks if alike[lag] >= ALIKE + max(0.0, min(alike[1:lag]))), 0)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
