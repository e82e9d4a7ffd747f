"""Faults in the kernel log while the slots of a run are only numbers: they are logged, as no slot can be named."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import structlog

from healthd.core.api.model import Finding, KernelRecord
from healthd.core.config import JudgePolicy
from healthd.core.diagnosis.findings.ledger import Ledger

log = structlog.get_logger(__name__)


class UnassignedFaults:
    """
    Logs each fault that would take a slot out of service, once while it stands.

    Records from before *since*, the start of the run, may be of a fault that was repaired: nothing on record says so.
    """

    def __init__(self, policy: JudgePolicy, since: datetime, *, trust_user_space: bool) -> None:
        self._ledger = Ledger.of((), policy)
        self._since = since
        self._trust_user_space = trust_user_space

    def ingest_records(self, records: Sequence[KernelRecord]) -> None:
        """Judge kernel *records*."""
        for record in records:
            if record.at < self._since:
                continue
            before = self._ledger.entries
            self._ledger = self._ledger.ingest_record(record, now=record.at, trust_user_space=self._trust_user_space)
            for name, finding in self._ledger.entries.items():
                if _stands(finding) and not _stands(before.get(name)):
                    self._report(finding, record)

    def _report(self, finding: Finding, record: KernelRecord) -> None:
        log.warning(
            "fault.unassigned",
            finding=finding.id,
            why=finding.message,
            record=record.text,
            so="slots are numbers without NVML, so no slot can be named for it, and none is taken out of service",
        )


def _stands(finding: Finding | None) -> bool:
    return finding is not None and finding.quarantines and finding.cleared_at is None
