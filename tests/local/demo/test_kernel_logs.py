"""The kernel logs of the demo: what is written to them arrives through the reader of `/dev/kmsg`."""

from __future__ import annotations

from contextlib import aclosing
from pathlib import Path

import pytest

from healthd.clock import SystemClock
from healthd.core.api import KernelLogCursor
from healthd.local.demo.kernel_logs import is_real_device, machine_log, own_log
from healthd.local.demo.script import Script
from healthd.local.machine.machine import OpenKernelLog
from healthd.probes.klog.kmsg import read_boot_id
from tests.kernel_log import Unwritable, kernel_log


async def read_until(open_kernel_log: OpenKernelLog, last: str) -> list[str]:
    """The texts of all records up to the one that ends with *last*."""
    texts: list[str] = []
    async with aclosing(open_kernel_log(KernelLogCursor()).batches()) as batches:
        async for batch in batches:
            texts += [record.text for record in batch.records]
            if any(text.endswith(last) for text in texts):
                break
    return texts


async def test_a_fault_arrives_as_the_driver_would_report_it() -> None:
    log, open_kernel_log = own_log(SystemClock(), "boot-1")
    log.write(Script().lost_gpu())

    assert await read_until(open_kernel_log, "the bus.") == [Script().lost_gpu()]
    log.close()


@pytest.mark.kmsg
async def test_what_earlier_demos_wrote_to_the_machines_log_is_not_read() -> None:
    try:
        with kernel_log() as real:
            real.write("NVRM: Xid (PCI:0000:99:00): 79, an earlier demo")
            log, open_kernel_log = machine_log(SystemClock(), read_boot_id())
            log.write(f"NVRM: Xid (PCI:0000:99:00): 31, this one {real.tag}")
            log.close()
            texts = await read_until(open_kernel_log, real.tag)
    except Unwritable as refusal:
        pytest.skip(str(refusal))

    assert [text for text in texts if real.tag in text] == [f"NVRM: Xid (PCI:0000:99:00): 31, this one {real.tag}"]


def test_an_address_with_a_device_is_distinguished(tmp_path: Path) -> None:
    (tmp_path / "0000:22:00.0").mkdir()

    assert is_real_device("0000:22:00.0", tmp_path)
    assert not is_real_device("0000:33:00.0", tmp_path)
