"""
What probes read: raw values of counters and states, without judgement.

A *source* (`nvml`, `infiniband`, …) is sampled from time to time. One sample has many readings. The rules in
`healthd.core.diagnosis.signals` define what the readings mean.
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
    counter or a gauge, a word is a state. *part* distinguishes the parts of one device: `port 1`, `nvlink 3`, `/var`.
    """

    device: str
    name: str
    value: float | str
    part: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """
    One sample of *source*, taken at *at*.

    What the source does not have (an old driver, a missing file) is left out: no reading, no judgement. When the source
    could not be read at all, *trouble* is the reason, for a person; it is no evidence about the hardware. *unread*
    names what exists but could not be read; the rest is in the readings.

    *empty* is the reason why there is nothing to read: no driver, no device. Whether there should be something is
    decided in `healthd.core.diagnosis.blindness`, as for a sample without any readings.
    """

    source: str
    at: datetime
    readings: Sequence[Reading] = ()
    trouble: str = ""
    unread: str = ""
    empty: str = ""
