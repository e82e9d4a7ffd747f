"""
What probes read: raw values of counters and states, without judgement.

A *source* (`nvml`, `infiniband`, …) is looked at now and then; one sample gives many readings. What they mean is said
by the rules in `healthd.core.diagnosis.signals`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

NODE = "node"
"""The device of readings and findings about the machine as a whole."""


class Reading(NamedTuple):
    """
    One value. *device* is a PCI address `dddd:bb:dd.f`, lower case, or `node`.

    *name* is `<source>.<what>`, for example `ib.symbol_error`; its unit is named where it is read. A number is a
    counter or a gauge, a word is a state. *part* tells parts of one device apart: `port 1`, `nvlink 3`, `/var`.
    """

    device: str
    name: str
    value: float | str
    part: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """
    What one sample of *source* showed at *at*.

    What the source does not have (an old driver, a file that is not there) is left out: no reading, no judgement. When
    it could not be read at all, *trouble* says why, for a person; that says nothing about the hardware. *unread* says
    what of it could not be read though it is there; the rest is in the readings.

    *empty* says why there is nothing to tell about: no driver, no device. Whether there should be something is said in
    `healthd.core.diagnosis.blindness`, as of a sample that has no readings at all.
    """

    source: str
    at: datetime
    readings: Sequence[Reading] = ()
    trouble: str = ""
    unread: str = ""
    empty: str = ""
