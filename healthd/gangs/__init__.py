"""
One adapter per gang kind: how its root is read, stopped and started.

To add a kind, add one module with an adapter, and one row in the table below.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from healthd.gangs.adapter import GangAdapter
from healthd.gangs.job import JobAdapter
from healthd.gangs.jobset import JobSetAdapter
from healthd.gangs.podgang import PodGangAdapter
from healthd.gangs.statefulset import StatefulSetAdapter

ADAPTERS: Mapping[str, GangAdapter[Any]] = {
    "JobSet": JobSetAdapter(),
    "StatefulSet": StatefulSetAdapter(),
    "Job": JobAdapter(),
    "PodGang": PodGangAdapter(),
}
"""By the kind that a recovery names. The topmost kinds come first: a pod belongs to the first whose root exists."""
