"""
What probes read, without judgement: the values of counters and states, and the records of the kernel log.

A *source* (`nvml`, `infiniband`, …) is sampled from time to time. One sample has many readings. The rules in
`healthd.core.diagnosis.signals` define what the readings mean. The kernel log is read in batches of records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

import msgspec

from healthd.core.api.model import KernelRecord

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


class RecordBatch(msgspec.Struct, frozen=True, kw_only=True):
    """
    The kernel records read since the last batch, oldest first.

    It may hold no record and no loss. Then everything up to *last_sequence* was read and is irrelevant.
    """

    source: str = "kmsg"
    """`kmsg`, `journal` or `file`: the source whose numbering the records have."""
    records: Sequence[KernelRecord] = ()
    last_sequence: int = -1
    count: int = 0
    """How many records were read, irrelevant ones included."""
    lost: int = 0
    """How many records were overwritten before they were read, exactly."""
    is_backlog: bool = False
    """There are more records from before the log was opened. A later one of them may withdraw what is reported here."""
    answered: int = 0
    """The last question (`KernelLog.ask`) that this batch answers: all records from before it have been read."""

    def plus(self, later: RecordBatch) -> RecordBatch:
        """This batch and the *later* one of the same log as one."""
        return msgspec.structs.replace(
            later,
            records=(*self.records, *later.records),
            count=self.count + later.count,
            lost=self.lost + later.lost,
        )
