"""What the API server enforces between two versions of an object, in CEL."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from healthd.core.api import (
    Incident,
)
from healthd.core.api.meta import Slim
from healthd.core.api.model import ENDED, Phase
from healthd.core.api.recoveries import (
    RecoverySpec,
    RecoveryStatus,
)

Schema = dict[str, Any]
"""A part of an OpenAPI schema, as JSON."""


@dataclass(frozen=True, slots=True)
class CelRule:
    """A CEL rule that the API server enforces; *message* is the error for the writer of a refused object."""

    rule: str
    message: str

    def to_schema(self) -> Schema:
        """The rule as JSON for the schema."""
        return {"rule": self.rule, "message": self.message}


def _one_of(phases: Iterator[Phase] | Sequence[Phase]) -> str:
    return "[" + ", ".join(f"'{phase}'" for phase in sorted(phases)) + "]"


_WAS = "(oldSelf.phase == 'Held' ? oldSelf.?heldIn.orValue('Detected') : oldSelf.phase)"
"""The phase of a recovery; while it was held, the phase in which it was held."""
_RUNNING = _one_of([Phase.STARTING, Phase.CONFIRMING])

RULES: Mapping[type[Slim], Sequence[CelRule]] = {
    RecoverySpec: [CelRule("self == oldSelf", "what started a recovery is history: spec cannot be changed")],
    Incident: [
        CelRule("self.key == oldSelf.key", "the key is the identity of an incident: services know it by that"),
        CelRule(
            "self.?revision.orValue(1) >= oldSelf.?revision.orValue(1)",
            "revisions are counted upwards: services would refuse a lower one",
        ),
    ],
    RecoveryStatus: [
        CelRule(
            f"!(oldSelf.phase in {_one_of(sorted(ENDED))}) || self.phase == oldSelf.phase",
            "a recovery that ended stays ended; a new fault gets a new one",
        ),
        CelRule(
            "self.?attempt.orValue(0) >= oldSelf.?attempt.orValue(0)",
            "attempts are counted upwards: a lower one would let an old start pass for the present one",
        ),
        CelRule(
            f"self.phase != 'Detected' || {_WAS} == 'Detected'",
            "a recovery that moved on does not become undecided again",
        ),
        CelRule(
            f"self.phase != 'Starting' || !({_WAS} in ['Detected', 'Stopping'])",
            "a gang is started only after its old pods were fenced",
        ),
        CelRule(
            f"self.phase != 'Recovered' || oldSelf.phase == 'Recovered' || {_WAS} in {_RUNNING}",
            "only a gang that was started again can have recovered",
        ),
        CelRule(
            "!(self.phase in ['Choosing', 'Reserving']) || (self.?openEnds.orValue(0) == 0 "
            "&& (!has(self.pods) || self.pods.all(pod, pod.?proof.orValue('') != '')))",
            "past the fence only when the end of every old pod is proven",
        ),
        CelRule(
            f"self.phase != 'Held' || (has(self.heldIn) && !(self.heldIn in {_one_of([*ENDED, Phase.HELD])}))",
            "a held recovery says which phase it goes on in",
        ),
    ],
}
"""The rules that must hold. They are few and exact: a rule that is too strict stops a recovery in the middle."""
