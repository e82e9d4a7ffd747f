"""A process that crashes under a chosen name, on the machine's real kernel log: it is no fault of a GPU."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from healthd.core.api.model import KernelRecord
from healthd.core.diagnosis.findings import Ledger
from tests.kernel_log import RealLog
from tests.probes.klog.test_real_kmsg import of_the_machine, wait_for

LOGS_CRASHES = Path("/proc/sys/debug/exception-trace")
LOGS_SIGNALS = Path("/proc/sys/kernel/print-fatal-signals")
NOBODY_UID = 65534
CRASHES = """
#include <sys/prctl.h>
int main(int argc, char **argv) {
    prctl(PR_SET_NAME, argv[1]);
    *(volatile int *)8 = 1;
}
"""


@contextmanager
def set_to(setting: Path, value: str) -> Iterator[None]:
    """A setting of the kernel for a while. Skips where it cannot be made."""
    try:
        before = setting.read_text()
        setting.write_text(f"{value}\n")
    except OSError as error:
        pytest.skip(f"cannot set {setting}: {error.strerror}")
    try:
        yield
    finally:
        setting.write_text(before)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A place from which user nobody may start programs."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def crash(folder: Path, *, name: str, file: str) -> None:
    """Run a program as user nobody that calls itself *name*, is called *file*, and crashes."""
    if (compiler := shutil.which("cc")) is None:
        pytest.skip("there is no C compiler here")
    program = folder / "crashes"
    subprocess.run([compiler, "-w", "-x", "c", "-o", program, "-"], input=CRASHES.encode(), check=True)
    died = subprocess.run(
        [program.rename(folder / file), name], user=NOBODY_UID, group=NOBODY_UID, extra_groups=[], check=False
    )
    if died.returncode != -11:
        pytest.skip(f"user nobody cannot start programs in {folder}")


async def written(log: RealLog) -> list[KernelRecord]:
    """The kernel's own records that quote the mark of *log*."""
    log.write("NVRM: end")
    records, _ = await wait_for(log, of_the_machine(trust_user_space=True), "NVRM: end")
    return [record for record in records if record.facility == 0]


@pytest.mark.kmsg
async def test_a_crash_under_a_drivers_name_is_no_fault(real_log: RealLog, folder: Path) -> None:
    with set_to(LOGS_CRASHES, "1"):
        crash(folder, name="NVRM: GPU", file=f"GPU 0000:3b:00.0 has fallen off the bus. {real_log.tag}")
    [record] = await written(real_log)

    assert record.text.startswith("NVRM: GPU[")
    assert "GPU 0000:3b:00.0 has fallen off the bus." in record.text
    assert Ledger().ingest_record(record, now=record.at).standing == []


@pytest.mark.kmsg
async def test_a_fatal_signal_of_a_file_with_a_drivers_words_is_no_fault(real_log: RealLog, folder: Path) -> None:
    with set_to(LOGS_SIGNALS, "1"), set_to(LOGS_CRASHES, "0"):
        crash(folder, name="x", file=f"NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus. {real_log.tag}")
    [record] = await written(real_log)

    assert "potentially unexpected fatal signal" in record.text
    assert Ledger().ingest_record(record, now=record.at).standing == []
