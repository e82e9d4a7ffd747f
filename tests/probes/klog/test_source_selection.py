"""Which source of kernel records is opened, and whose refusal is reported."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import aclosing
from pathlib import Path

import pytest

from healthd.core.config import KernelLogPolicy, KernelLogSource
from healthd.probes.errors import CannotRead
from healthd.probes.host_root import HostRoot
from healthd.probes.klog.log import KernelLog
from healthd.probes.klog.source_selection import open_kernel_log
from tests.fakes import ManualClock

A_MINUTE = 60
needs_journal = pytest.mark.skipif(shutil.which("journalctl") is None, reason="there is no journalctl here")


def opened(source: KernelLogSource, path: Path | str, socket: str = "") -> KernelLog:
    policy = KernelLogPolicy(source=source, path=str(path), socket=socket)
    return open_kernel_log(policy, HostRoot(), ManualClock(), boot_id="boot-1")


def test_device_is_the_one_below_the_root_of_the_host_when_no_path_is_named(tmp_path: Path) -> None:
    with pytest.raises(CannotRead, match=f"{tmp_path}/dev/kmsg"):
        open_kernel_log(KernelLogPolicy(source=KernelLogSource.KMSG), HostRoot(tmp_path), ManualClock(), boot_id="b")


async def test_log_file_is_read_when_it_is_named(tmp_path: Path) -> None:
    (tmp_path / "kern.log").write_text("[    1.000000] NVRM: Xid (PCI:0000:3b:00): 79\n")
    log = opened(KernelLogSource.FILE, tmp_path / "kern.log")
    async with asyncio.timeout(A_MINUTE), aclosing(log.batches()) as batches:
        batch = await anext(batches)

    assert log.source == "file"
    assert [record.text for record in batch.records] == ["NVRM: Xid (PCI:0000:3b:00): 79"]


@needs_journal
def test_journal_is_read_when_it_is_named_or_the_device_is_closed(tmp_path: Path) -> None:
    assert opened(KernelLogSource.JOURNAL, "").source == "journal"
    assert opened(KernelLogSource.AUTO, tmp_path / "no-kmsg").source == "journal"


@pytest.mark.parametrize("source", [KernelLogSource.KMSG, KernelLogSource.FILE])
def test_path_that_is_named_has_no_stand_in(tmp_path: Path, source: KernelLogSource) -> None:
    with pytest.raises(CannotRead, match="no-log"):
        opened(source, tmp_path / "no-log")


@pytest.mark.parametrize("source", [KernelLogSource.KMSG, KernelLogSource.AUTO])
def test_opener_that_does_not_answer_has_no_stand_in(tmp_path: Path, source: KernelLogSource) -> None:
    with pytest.raises(CannotRead, match="no-opener"):
        opened(source, tmp_path / "no-kmsg", socket=str(tmp_path / "no-opener"))
