"""
One incident: what happened, what healthd did, and what is left for a person to do.

An incident is opened once for one cause, is updated while its recovery moves, and is resolved when the cause is gone.
Its key stays the same over restarts of healthd and changes of the leader, so every alert service can tell an update
from a new incident. It is stored in the cluster as it is sent, so its fields are declared in `healthd.core.api`.
"""

from __future__ import annotations

from healthd.core.api.incidents import LONGEST_KEY, Incident, Severity

__all__ = ["LONGEST_KEY", "Incident", "Severity"]
