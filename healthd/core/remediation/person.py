"""What a person wants for a node. A person's word wins over everything that healthd would do. Pure."""

from __future__ import annotations

from datetime import datetime

from healthd.core.api import Node
from healthd.core.api.names import ANNOTATION_REMEDIATION, ANNOTATION_RETRY
from healthd.core.remediation.situation import PersonsWord
from healthd.core.untrusted import moment_or_none


def persons_word(node: Node) -> PersonsWord:
    """The annotation of *node*. A word that healthd does not know means that a person wants something: hands off."""
    said = node.metadata.annotations.get(ANNOTATION_REMEDIATION, "").strip().lower()
    return PersonsWord(said) if said in set(PersonsWord) else PersonsWord.OFF


def retry_at(node: Node, now: datetime) -> datetime | None:
    """When a person last asked for a further try. A time without a zone, or in the future, is none."""
    at = moment_or_none(node.metadata.annotations.get(ANNOTATION_RETRY, ""))
    return at if at is not None and at <= now else None
