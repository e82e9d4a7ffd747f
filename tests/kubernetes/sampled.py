"""Which of many scenarios are played: every day some of each, and all with `HEALTHD_ALL_SCENARIOS=1`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

RUNS_ALL = bool(os.environ.get("HEALTHD_ALL_SCENARIOS"))
"""All scenarios are asked for."""


def one_in(step: int, scenarios: Sequence[T]) -> list[T]:
    """Every *step*-th of *scenarios*, from the first one on; with `HEALTHD_ALL_SCENARIOS=1` all."""
    return list(scenarios if RUNS_ALL else scenarios[::step])
