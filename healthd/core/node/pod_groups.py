"""Where the control groups of the pods of a node are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class PodGroup(NamedTuple):
    """The control group of one pod: its place below the root of its tree, and the names of its containers' groups."""

    path: str
    containers: frozenset[str]


class PodGroups(NamedTuple):
    """All of them, by uid. *root* is the mount point of control groups."""

    root: str
    is_v2: bool
    pods: Mapping[str, PodGroup]
