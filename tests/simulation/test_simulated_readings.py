"""What the simulated instruments of one machine show."""

from __future__ import annotations

import random
from datetime import timedelta

from healthd.core.diagnosis.signals.rule import Grows
from healthd.core.diagnosis.signals.series import ALL_ONES
from tests.simulation.machines import PCI
from tests.simulation.simulated_readings import RANGE, SimulatedReading


def test_no_counter_stands_at_what_a_device_shows_that_does_not_answer() -> None:
    """As in seed 3620008244: what stood there was never seen good again."""
    counter = SimulatedReading("eth.carrier_down_count", PCI, "", [Grows(1, timedelta(hours=1))], value=RANGE - 21)
    shown = set()
    for _ in range(40):
        counter.worsen(random.Random(1))
        shown.add(counter.show())

    assert counter.value in range(100)
    assert not shown & ALL_ONES
