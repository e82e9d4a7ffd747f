"""`healthd check` from outside: exit codes, JSON, and a machine whose driver, CUDA and /sys are stand-ins."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from healthd.cli.main import main
from healthd.cluster.embedded import EmbeddedCluster
from healthd.core.api import Node
from healthd.core.remediation.check_summary import read_result, shortfall
from healthd.local.state.folder import database
from tests.builders import a_node
from tests.checks.contexts import is_gone
from tests.checks.test_busy import a_process
from tests.fakes import ManualClock, counting_uids
from tests.standin import cuda, nvml
from tests.sysfs import Sysfs, link, made, set_link

pytestmark = pytest.mark.slow

GPU0, GPU1 = "0000:3b:00.0", "0000:3c:00.0"
PASSIVE = ["inventory", "nvlink", "ecc", "pcie-width", "nics"]


@dataclass
class Machine:
    """Two GPUs with a port each, on which nothing runs."""

    root: Path
    nvml: nvml.StandIn
    cuda: cuda.StandIn

    def __post_init__(self) -> None:
        self.sys = Sysfs(self.root / "sys")
        for number, pci in enumerate((GPU0, GPU1)):
            bridge = f"pci0000:00/0000:00:0{number + 1}.0"
            link(self.sys.gpu(pci, bridge) / "driver", made(self.sys.root / "bus/pci/drivers/nvidia"))
            self.port = self.sys.rdma(f"mlx5_{number}", f"0000:5{number}:00.0", below=bridge)
        self.proc = made(self.root / "proc")
        self.config = self.root / "healthd.yaml"
        self.config.write_text(f"host_root: {self.root}\n")
        self.nvml.play("gpus 2")
        self.environ = {**self.nvml.environ, **self.cuda.environ, "PATH": "/nowhere"}

    def command(self, *options: str) -> list[str]:
        return [sys.executable, "-m", "healthd.cli.main", "check", "--config", str(self.config), *options]

    def check(self, *options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*options), env=self.environ, capture_output=True, text=True, timeout=60, check=False
        )

    def printed(self, *options: str) -> tuple[int, dict[str, Any]]:
        done = self.check("--json", *options)
        return done.returncode, json.loads(done.stdout)


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cuda.build(nvml.build(tmp_path_factory.mktemp("libraries")))


@pytest.fixture
def machine(tmp_path: Path, libraries: Path) -> Machine:
    return Machine(
        tmp_path, nvml.StandIn(libraries, tmp_path / "nvml-script"), cuda.StandIn(libraries, tmp_path / "cuda-script")
    )


def statuses(printed: dict[str, Any]) -> dict[str, str]:
    return {check["name"]: check["status"] for check in printed["checks"]}


def test_a_good_machine_passes(machine: Machine) -> None:
    code, printed = machine.printed()

    assert (code, printed["result"], printed["busy"]) == (0, "pass", [])
    assert statuses(printed) == dict.fromkeys(PASSIVE, "pass")


@pytest.mark.slow
def test_a_deep_check_also_copies_and_skips_what_is_not_installed(machine: Machine) -> None:
    machine.cuda.play("memory 600")
    machine.nvml.play("gpus 2", "value nvmlDeviceGetMaxPcieLinkGeneration * 0")  # a stand-in has no line rate

    code, printed = machine.printed("--deep")

    deep = {name: status for name, status in statuses(printed).items() if name not in PASSIVE}
    assert deep == {
        "pcie-bandwidth": "pass",
        "gpu-memory": "pass",
        "rdma-loopback": "skip",
        "nccl": "skip",
        "dcgm": "skip",
    }
    assert code == 0


def test_the_result_is_left_in_few_bytes_with_the_boot_in_which_it_was_found(machine: Machine, tmp_path: Path) -> None:
    boot_id = made(machine.proc / "sys/kernel/random") / "boot_id"
    boot_id.write_text("4f1c0c6e\n")
    left = tmp_path / "result"

    code, printed = machine.printed("--expect-gpus", "2", "--skip", "nics", "--result", str(left))
    summary = read_result(left.read_text())

    assert "nics" not in statuses(printed)
    assert summary is not None
    assert (code, summary.result, summary.boot_id, summary.gpus, summary.expected_gpus) == (0, "pass", "4f1c0c6e", 2, 2)
    assert summary.passed == [name for name in PASSIVE if name != "nics"]
    assert shortfall(summary, 2).startswith("no GPU was tried under load")


def test_a_result_that_cannot_be_left_is_an_error(machine: Machine) -> None:
    assert machine.check("--result", "/nowhere/result").returncode == 2


def test_a_fault_makes_the_exit_code_3_and_is_reported(machine: Machine) -> None:
    machine.nvml.play("gpus 2", "field 144 1 * 1 1")

    done = machine.check()

    assert done.returncode == 3
    assert "fail ecc             0000:3c:00.0: a memory row waits to be remapped: reset the GPU" in done.stdout
    assert "fail: 4 passed, 1 failed" in done.stdout


def test_a_port_that_is_down_fails(machine: Machine) -> None:
    set_link(machine.port, "1: DOWN", "2: Polling")
    (machine.port / "counters" / "link_downed").write_text("1\n")

    assert machine.printed("--only", "nics")[0] == 3


@pytest.mark.parametrize("option", [("--gpus", "8"), ("--nics", "8"), ("--nic-rate", "800")])
def test_what_somebody_expects_must_be_there(machine: Machine, option: tuple[str, str]) -> None:
    assert machine.printed(*option)[0] == 3


def test_nothing_is_done_while_nvml_counts_processes(machine: Machine) -> None:
    machine.nvml.play("gpus 2", "value nvmlDeviceGetComputeRunningProcesses 1 1")

    code, printed = machine.printed("--deep")

    assert (code, printed["result"], printed["checks"]) == (5, "busy", [])
    assert printed["busy"] == [f"1 on GPU 1 ({GPU1})"]


def test_nothing_is_done_while_a_process_computes_and_it_is_named(machine: Machine) -> None:
    a_process(machine.proc, 4321, "python", "/dev/nvidia-uvm")

    done = machine.check()

    assert done.returncode == 5
    assert "python (process 4321)" in done.stdout


def test_with_force_it_checks_beside_a_process(machine: Machine) -> None:
    a_process(machine.proc, 4321, "python", "/dev/nvidia-uvm")

    assert machine.printed("--force")[0] == 0


def test_memory_that_is_taken_by_somebody_who_cannot_be_seen_ends_it(machine: Machine) -> None:
    machine.cuda.play("memory 9000 8990")

    code, printed = machine.printed("--only", "inventory", "gpu-memory")

    assert (code, statuses(printed)) == (5, {"inventory": "pass"})
    assert "8,990 MiB of 0000:3b:00.0 are in use" in printed["busy"][0]


def test_with_force_it_tests_the_memory_that_is_left(machine: Machine) -> None:
    machine.cuda.play("memory 9000 8990")

    assert machine.printed("--force", "--only", "gpu-memory")[0] == 0


def test_in_a_container_the_gpus_that_it_was_not_given_are_not_missed(machine: Machine) -> None:
    machine.nvml.play("gpus 1")

    assert machine.printed("--gpus", "1", "--only", "inventory")[0] == 0
    assert machine.printed("--gpus", "2", "--only", "inventory")[0] == 3


def test_a_deep_check_that_is_named_is_run_without_deep(machine: Machine) -> None:
    code, printed = machine.printed("--only", "gpu-memory")

    assert (code, statuses(printed)) == (0, {"gpu-memory": "pass"})


@pytest.mark.slow
def test_a_driver_that_hangs_fails_in_time(machine: Machine) -> None:
    machine.nvml.play("hang nvmlInit *")

    code, printed = machine.printed("--timeout", "2s")

    assert code == 3
    assert "no time left" in printed["checks"][0]["why"] or "NVML cannot be asked" in printed["checks"][0]["why"]


def test_sigterm_ends_also_what_was_started(machine: Machine) -> None:
    machine.cuda.play("hang cuMemAlloc *")

    with subprocess.Popen(
        machine.command("--only", "gpu-memory"), env=machine.environ, stdout=subprocess.PIPE
    ) as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        while not (asking := [pid for pid in children.read_text().split() if is_asking_cuda(pid)]):
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)

    assert process.returncode == 130
    assert all(is_gone(int(pid)) for pid in asking)


def is_asking_cuda(pid: str) -> bool:
    try:
        return "cuda_child.py" in Path(f"/proc/{pid}/cmdline").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--only", "nvlnk"], "there is no check 'nvlnk'; did you mean 'nvlink'?"),
        (["--only", "zzz"], "there is no check 'zzz'; there are inventory, nvlink"),
        (["--timeout", "soon"], "--timeout soon: "),
    ],
)
def test_what_cannot_be_meant_is_a_usage_error(
    capsys: pytest.CaptureFixture[str], options: list[str], says: str
) -> None:
    assert main(["check", *options]) == 2
    assert says in capsys.readouterr().err


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """The configuration of a machine that shows no device, as one whose driver is dead."""
    config = tmp_path / "healthd.yaml"
    config.write_text(f"host_root: {tmp_path}\n")
    (tmp_path / "sys" / "class").mkdir(parents=True)
    return config


def test_a_machine_on_which_nothing_can_be_checked_has_not_passed(
    bare: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", "--config", str(bare)]) == 4
    assert "nothing checked: 5 skipped" in capsys.readouterr().out


def test_its_report_says_that_nothing_was_checked(bare: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--config", str(bare), "--json"]) == 4
    assert json.loads(capsys.readouterr().out)["result"] == "unchecked"


@pytest.mark.parametrize("option", ["--gpus", "--expect-gpus"])
def test_a_machine_that_shows_no_gpu_fails_where_somebody_expects_some(bare: Path, option: str) -> None:
    assert main(["check", "--config", str(bare), option, "8"]) == 3


def test_a_machine_that_shows_no_gpu_fails_where_the_cluster_knows_of_some(
    bare: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labelled = a_node("slot-2", labels={"nvidia.com/gpu.count": "8"})
    asyncio.run(fill(tmp_path / "train", labelled))

    assert main(["check", "--config", str(bare), "--node", "slot-2", "--state", str(tmp_path / "train")]) == 3
    assert "0 GPUs answer, and 8 are expected: its label nvidia.com/gpu.count is 8" in capsys.readouterr().out


def test_a_node_that_the_cluster_does_not_know_is_an_error(
    bare: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(fill(tmp_path / "train", a_node("slot-2")))

    assert main(["check", "--config", str(bare), "--node", "slot-3", "--state", str(tmp_path / "train")]) == 2
    assert "has no node 'slot-3'" in capsys.readouterr().err


def test_a_cluster_that_does_not_answer_costs_no_more_than_the_deadline(
    bare: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(KUBECONFIG % mute.getsockname()[1])
        options = ["--node", "gpu-17", "--kubeconfig", str(kubeconfig), "--timeout", "1s"]

        assert main(["check", "--config", str(bare), *options]) == 2

    assert "the cluster did not answer in 1s" in capsys.readouterr().err


KUBECONFIG = """\
clusters: [{name: c, cluster: {server: "http://127.0.0.1:%d"}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
users: [{name: u, user: {token: t}}]
current-context: c
"""


async def fill(state: Path, node: Node) -> None:
    """The state of a run with one node."""
    state.mkdir()
    with EmbeddedCluster.open(database(state), clock=ManualClock(), new_uid=counting_uids()) as cluster:
        await cluster.create(node)
