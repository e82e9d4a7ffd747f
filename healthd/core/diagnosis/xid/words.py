"""
The meaning of a message without a code, by its words: a table, one row for each message of a driver or the kernel.

The first row of a message's kind that matches counts; the order of the rows is part of the table. It is loaded at first
use, so that importing costs nothing.
"""

from __future__ import annotations

from enum import StrEnum
from functools import cache

import msgspec

from healthd.core.api.model import Blame
from healthd.core.diagnosis.judgement import Needs
from healthd.core.diagnosis.klog.message import Message, MessageKind
from healthd.core.diagnosis.klog.process import without_names
from healthd.core.diagnosis.xid.tables import read_data


class WordingEffect(StrEnum):
    """What a message does to the findings of its device."""

    RAISES = "raises"
    ENDS = "ends"
    """The fault that the same rule reported is over."""
    NOTHING = "nothing"
    """It only looks like a fault."""


class Wording(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """
    The meaning of a message of *kind* that holds one of the words *any*, and one of *also*. Words are in lower case.

    A row without *any* matches every message of the kind. *fatal* matches only the severity in the line itself. *tier*
    is empty where nothing is raised.
    """

    kind: MessageKind
    summary: str
    any: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    fatal: bool | None = None
    says: WordingEffect = WordingEffect.RAISES
    rule: str = ""
    tier: str = ""
    blame: Blame = Blame.UNKNOWN
    advice: str = ""
    """What a person should do, where the tier does not make that clear."""
    needs: Needs | None = None
    source: str = ""
    """Why a count is what it is."""

    def fits(self, message: Message, words: str) -> bool:
        """Whether this row matches *message*, whose text in lower case is *words*."""
        if self.fatal is not None and message.fatal is not self.fatal:
            return False
        return _holds(words, self.any) and _holds(words, self.also)


class _Words(msgspec.Struct, frozen=True, kw_only=True):
    source: str
    words: tuple[Wording, ...]


def wording_of(message: Message) -> Wording | None:
    """The row that *message* matches. None where it is of no interest."""
    words = without_names(message.text).lower()
    return next((row for row in _by_kind().get(message.kind, ()) if row.fits(message, words)), None)


@cache
def wordings() -> tuple[Wording, ...]:
    """Every row, in the order in which they are tried."""
    return msgspec.json.decode(read_data("words.json"), type=_Words).words


@cache
def _by_kind() -> dict[MessageKind, tuple[Wording, ...]]:
    return {kind: tuple(row for row in wordings() if row.kind is kind) for kind in MessageKind}


def _holds(text: str, words: tuple[str, ...]) -> bool:
    return not words or any(word in text for word in words)
