"""The machine's own kernel log under `healthd run`: a record becomes a restart, and a closed log is said aloud."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import socket
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from healthd.core.api import NodeHealth
from healthd.core.api.model import Phase, Verdict
from tests.e2e.driver import RunFolder
from tests.kernel_log import RealLog, Unwritable, kernel_log

pytestmark = pytest.mark.slow


@pytest.fixture
def real_log() -> Iterator[RealLog]:
    """The machine's own kernel log, locked for this test."""
    try:
        with kernel_log() as log:
            yield log
    except Unwritable as refusal:
        pytest.skip(str(refusal))


@pytest.mark.kmsg
async def test_a_record_of_the_real_kernel_log_becomes_a_restart(run_folder: RunFolder, real_log: RealLog) -> None:
    domain = f"{uuid.uuid4().hex[:4]}"  # the log may still hold what other tests wrote of other GPUs
    run_folder.configure(kernel_log="/dev/kmsg", trust_user_space=True)
    run_folder.install_gpus(domain)
    async with run_folder.life("--spares", "1") as life:
        await run_folder.all_wait(life, 0)
        real_log.write(f"NVRM: Xid (PCI:{domain}:3b:00): 79, pid=1, GPU has fallen off the bus.")
        await life.says("recovery.phase", phase=Phase.RECOVERED)
        run_folder.open_gate()

        assert await life.ended() == 0, life.log
    [recovery] = await run_folder.recoveries()

    assert recovery.status.replacements == {"slot-0": "slot-2"}
    assert run_folder.starts() == [(0, 0), (1, 4)]
    run_folder.check_writers()


async def test_a_log_that_is_closed_is_said_once_and_nothing_is_called_healthy(run_folder: RunFolder) -> None:
    run_folder.configure(kernel_log="/no/such/kmsg")
    address = f"127.0.0.1:{free_port()}"
    async with run_folder.life("--metrics", address) as life:
        blind = await life.says("kernel_log.unreadable")
        await run_folder.all_wait(life, 0)
        status, readiness = await asyncio.to_thread(ask, f"http://{address}/readyz")
        run_folder.open_gate()

        assert await life.ended() == 0, life.log
    with run_folder.cluster() as cluster:
        verdicts = {health.status.verdict for health in (await cluster.list(NodeHealth)).items}

    assert "cannot read /no/such/kmsg" in blind["why"]
    assert (status, readiness["ready"]) == (503, False)
    assert "/no/such/kmsg" in readiness["reasons"]["kernel_log"]
    assert verdicts == {Verdict.UNKNOWN}
    assert [line["event"] for line in life.said].count("kernel_log.unreadable") == 1


async def test_without_permission_to_read_the_log_the_message_says_how_to_allow_it(run_folder: RunFolder) -> None:
    """Root without CAP_SYSLOG, as in most containers."""
    if os.getuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("only root can give up CAP_SYSLOG, and only with setpriv")
    if Path("/proc/sys/kernel/dmesg_restrict").read_text().strip() != "1":
        pytest.skip("kernel.dmesg_restrict is 0 here: everybody may read the log")
    run_folder.configure(kernel_log="/dev/kmsg")
    without = ["setpriv", "--bounding-set=-syslog,-sys_admin"]
    async with run_folder.life(prefix=without) as life:
        blind = await life.says("kernel_log.unreadable")
        await run_folder.all_wait(life, 0)
        run_folder.open_gate()

        assert await life.ended() == 0, life.log
    assert re.search("Operation not permitted.*CAP_SYSLOG", blind["why"])


def free_port() -> int:
    """A TCP port without a listener now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def ask(url: str) -> tuple[int, dict[str, Any]]:
    """Status and JSON that *url* answers with."""
    try:
        with urllib.request.urlopen(url) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)
