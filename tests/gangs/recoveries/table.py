"""Which kinds play which scenarios: all of them on demand, a diagonal every day, and what is known not to hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.gangs.recoveries.gangs import PLAYED
from tests.gangs.recoveries.stories import STORIES, applies
from tests.lab.kinds.fixtures import ALL_KINDS, is_usual

EVERY_DAY = {
    ("Job", "smaller, and grown back"),
    ("StatefulSet", "smaller, and grown back"),
    ("PyTorchJob", "node of a member"),
    ("PyTorchJob", "smaller, and grown back"),
    ("TFJob", "SIGTERM ignored"),
    ("XGBoostJob", "SIGTERM ignored"),
    ("XGBoostJob", "while it starts"),
    ("PaddleJob", "killed while stopping"),
    ("JAXJob", "killed while starting"),
    ("MPIJob", "node of the first"),
}
"""What `make test` plays, of kinds whose controllers `make lab` builds."""
LIMITS: Mapping[tuple[str, str], str] = {
    ("XGBoostJob", "a member fails"): "its operator declares the job Failed for good as soon as one member has ended "
    "with an error, before anything can stop it. The recovery says so, and the job is yours to make again",
}
"""What does not hold, and why."""


def cells() -> list[Any]:
    """Parameters kind and story; those that are not played every day carry the mark of `--all-kinds`."""
    return [
        pytest.param(kind, story, marks=_marks(kind, story), id=f"{kind}-{story}")
        for kind in PLAYED
        for story in STORIES
        if applies(kind, story)
    ]


def _marks(kind: str, story: str) -> list[pytest.MarkDecorator]:
    marks = [] if (kind, story) in EVERY_DAY and is_usual(kind) else [getattr(pytest.mark, ALL_KINDS)]
    limit = LIMITS.get((kind, story))
    return [*marks, pytest.mark.xfail(reason=limit, strict=True)] if limit else marks
