"""The findings about a node's hardware over time: the ledger of findings, and the life of each. Pure."""

from __future__ import annotations

from healthd.core.diagnosis.findings.ledger import BY_DEFAULT, KMSG_LOST, Ledger

__all__ = ["BY_DEFAULT", "KMSG_LOST", "Ledger"]
