"""Which spares recoveries take, and whether one may need a further one soon. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from healthd.core.api import Recovery
from healthd.core.api.model import ENDED, Phase

_HAS_ITS_NODES = frozenset({Phase.CONFIRMING})


def wanted_spares(recoveries: Iterable[Recovery]) -> dict[str, str]:
    """Nodes that recoveries plan with, whether they are claimed already or not: node -> why, in a few words."""
    wanted: dict[str, str] = {}
    for recovery in recoveries:
        status = recovery.status
        if status.phase not in ENDED:
            why = f"recovery {recovery.metadata.namespace}/{recovery.metadata.name} takes it"
            planned = (*status.replacements.values(), *status.stand_ins.values(), *status.placement.values())
            wanted |= dict.fromkeys(planned, why)
    return wanted


def needs_a_spare(recoveries: Iterable[Recovery]) -> str:
    """A recovery that may need a spare before its gang runs again, as `namespace/name`; empty: none does."""
    for recovery in recoveries:
        status = recovery.status
        phase = status.held_in if status.phase is Phase.HELD and status.held_in else status.phase
        if phase not in ENDED and phase not in _HAS_ITS_NODES:
            return f"{recovery.metadata.namespace}/{recovery.metadata.name}"
    return ""
