"""
The annotation by which the controller tells the agent of an idle spare that the spare failed its check. Pure.

Only agents take nodes out of service, each its own, within the budget. So the controller writes what was found, and the
agent makes a finding of it like of any other reading.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from healthd.core.api import Node
from healthd.core.api.names import ANNOTATION_FAILED_CHECK, LABEL_SPARE
from healthd.core.node.quarantine import repaired_at
from healthd.core.printable import printable
from healthd.core.untrusted import moment_or_none

LONGEST = 300
"""Characters of the reason."""


class FailedCheck(NamedTuple):
    """The check that failed: when it began, and why it failed."""

    at: datetime
    why: str


def written(at: datetime, why: str) -> str:
    """The value of the annotation."""
    return f"{at.isoformat()} {printable(why[:LONGEST])[:LONGEST]}"


def read_failed_check(node: Node) -> FailedCheck | None:
    """
    What stands on *node*. None: nothing, or it cannot be read, or the node was repaired since, or it is no spare. A
    node that works, or waits for work, is judged by what its own agent sees.
    """
    said = node.metadata.annotations.get(ANNOTATION_FAILED_CHECK)
    if said is None:  # asked of every node of a fleet
        return None
    at, _, why = said.partition(" ")
    began = moment_or_none(at)
    if began is None or node.metadata.labels.get(LABEL_SPARE) != "true":
        return None
    repaired = repaired_at(node)
    if repaired is not None and repaired >= began:
        return None
    return FailedCheck(began, printable(why[:LONGEST])[:LONGEST].strip())
