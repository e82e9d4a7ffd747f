"""When NCCL's RAS is asked about the ranks of a run: never a job that may crash, and never the job of another."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from healthd.local.hang.nccl_ranks import ask_nccl, port_in
from healthd.probes.errors import CannotRead
from healthd.probes.hang.nccl_ras import PORT, RasRefused
from tests.probes.hang.ras_server import RasServer, a_communicator, a_report, serving

HERE = os.getpid()


@pytest.fixture
def server() -> Iterator[RasServer]:
    """RAS, asked over this process."""
    with serving(a_report(a_communicator("0xabc", [9, 8]))) as listening:
        yield listening


@pytest.fixture
def library(tmp_path: Path) -> Iterator[Path]:
    """A library of NCCL that this process has mapped, of a version that may be asked."""
    path = tmp_path / "libnccl.so.2"
    path.write_bytes(b"\x7fELF" + bytes(5000) + b"NCCL version 2.30.8+cuda13.3\0")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ):
        yield path


@pytest.mark.usefixtures("library")
def test_a_version_that_may_be_asked_is_asked_where_the_port_is_of_the_run(server: RasServer) -> None:
    assert set(ask_nccl([HERE, HERE], port=server.port, deadline_s=5)) == {0, 1}


@pytest.mark.parametrize("text", [b"NCCL version 2.30.7+cuda13.3", b"no version"])
def test_a_version_that_may_crash_or_is_not_known_is_not_asked(server: RasServer, library: Path, text: bytes) -> None:
    with library.open("r+b") as file:
        file.seek(5004)
        file.write(text.ljust(40, b"\0"))
    with pytest.raises(RasRefused):
        ask_nccl([HERE], port=server.port, deadline_s=5)
    assert server.heard == []


@pytest.mark.usefixtures("library")
def test_a_port_of_another_process_is_not_asked(server: RasServer, tmp_path: Path) -> None:
    code = "import mmap, sys; f = open(sys.argv[1], 'rb'); m = mmap.mmap(f.fileno(), 0, access=1); print(); input()"
    command = [sys.executable, "-I", "-S", "-c", code, str(tmp_path / "libnccl.so.2")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as rank:
        assert rank.stdout is not None
        rank.stdout.readline()
        with pytest.raises(CannotRead, match="not of this run"):
            ask_nccl([rank.pid], port=server.port, deadline_s=5)
    assert server.heard == []


@pytest.mark.usefixtures("library")
def test_where_nothing_listens_nothing_is_asked() -> None:
    with serving(a_report()) as closed:
        port = closed.port
    with pytest.raises(CannotRead, match="not of this run"):
        ask_nccl([HERE], port=port, deadline_s=5)


def test_ranks_without_nccl_have_nothing_to_say(server: RasServer) -> None:
    assert ask_nccl([HERE], port=server.port, deadline_s=5) == {}
    assert ask_nccl([0, 2**22 + 1], port=server.port, deadline_s=5) == {}


@pytest.mark.parametrize(
    ("address", "port"),
    [("", PORT), (":2", 2), ("localhost:12345", 12345), ("[::1]:77", 77), ("host", PORT), ("h:99999999", PORT)],
)
def test_the_port_is_that_of_the_variable(address: str, port: int) -> None:
    assert port_in(address) == port
