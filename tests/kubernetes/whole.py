"""Which of many stories are told: every day some of each, and all with `HEALTHD_WHOLE=1`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

IS_WHOLE = bool(os.environ.get("HEALTHD_WHOLE"))
"""All stories are asked for."""


def one_in(step: int, stories: Sequence[T]) -> list[T]:
    """Every *step*-th of *stories*, from the first one on; with `HEALTHD_WHOLE=1` all."""
    return list(stories if IS_WHOLE else stories[::step])
