"""`healthd status`: one look at a machine whose driver, /sys and kernel log are stand-ins."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from healthd.checks.status import published
from healthd.cli.commands.status import EXIT
from healthd.cli.main import main
from healthd.clock import SystemClock
from healthd.cluster.embedded import EmbeddedCluster
from healthd.core.api import Device, Nic, NodeHealth, NodeHealthStatus, ObjectMeta
from healthd.core.api.model import Blame, Finding, RepairAction, Severity, Verdict
from healthd.local.state.folder import database
from tests.fakes import START, ManualClock, counting_uids
from tests.standin.nvml import StandIn, build
from tests.sysfs import Sysfs, link, made, set_link

pytestmark = pytest.mark.slow

GPU0, GPU1 = "0000:3b:00.0", "0000:3c:00.0"
XID_79 = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus."


@dataclass
class Machine:
    """Two GPUs with a port each, all well until a test says otherwise."""

    root: Path
    standin: StandIn

    def __post_init__(self) -> None:
        self.sys = Sysfs(self.root / "sys")
        self.ports = {}
        for number, pci in enumerate((GPU0, GPU1)):
            bridge = f"pci0000:00/0000:00:0{number + 1}.0"
            link(self.sys.gpu(pci, bridge) / "driver", made(self.sys.root / "bus/pci/drivers/nvidia"))
            self.ports[number] = self.sys.rdma(f"mlx5_{number}", f"0000:5{number}:00.0", below=bridge)
        self.log = self.root / "kern.log"
        self.log.write_text("")
        self.config = self.root / "healthd.yaml"
        self.configure()
        self.standin.play("gpus 2")

    def configure(self, **probes: str) -> None:
        printed = "".join(f"  {key}: {value}\n" for key, value in probes.items())
        self.config.write_text(
            f"host_root: {self.root}\nprobes:\n{printed}kernel_log:\n  source: file\n  path: {self.log}\n"
        )

    def happened(self, text: str, *, ago: timedelta = timedelta(0)) -> None:
        """A line of the kernel, after the boot."""
        at = SystemClock().now() - min(ago, timedelta(seconds=time.monotonic() - 1))
        with self.log.open("a") as log:
            log.write(f"{at.isoformat()} gpu-17 kernel: {text}\n")

    def status(self, *options: str) -> subprocess.CompletedProcess[str]:
        return healthd("status", "--config", str(self.config), *options, environ=self.standin.environ)

    def printed(self, *options: str) -> dict[str, Any]:
        done = self.status("--json", *options)
        answer: dict[str, Any] = json.loads(done.stdout)
        assert done.returncode == EXIT[Verdict(answer["verdict"])]
        return answer


def healthd(*arguments: str, environ: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "healthd.cli.main", *arguments]
    return subprocess.run(command, env=dict(environ), capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def machine(tmp_path: Path, library: Path) -> Machine:
    return Machine(tmp_path, StandIn(library, tmp_path / "script"))


def test_a_healthy_machine_is_shown_with_its_gpus_and_ports(machine: Machine) -> None:
    printed = machine.printed()

    assert printed["verdict"] == "healthy"
    assert [(gpu["pci"], gpu["state"], gpu["nvlinksUp"], gpu["remap"]) for gpu in printed["gpus"]] == [
        (GPU0, "ok", 18, "ok"),
        (GPU1, "ok", 18, "ok"),
    ]
    assert [(port["device"], port["rail"], port["state"], port["rateGbps"]) for port in printed["ports"]] == [
        ("mlx5_0", 0, "up", 400),
        ("mlx5_1", 1, "up", 400),
    ]
    assert printed["unread"] == []


def test_a_machine_without_gpus_says_so(tmp_path: Path) -> None:
    config = tmp_path / "healthd.yaml"
    config.write_text(f"host_root: {tmp_path}\nkernel_log: {{source: file, path: {tmp_path}/log}}\n")
    (tmp_path / "log").write_text("")

    assert "\nno GPU here\n" in healthd("status", "--config", str(config), environ=os.environ).stdout


def test_a_broken_gpu_makes_the_exit_code_3(machine: Machine) -> None:
    machine.standin.play("gpus 2", "field 145 1 * 1 1")

    done = machine.status()

    assert done.returncode == 3
    assert "is unhealthy: nvml-row-remap-failure" in done.stdout
    assert "takes the node out" in done.stdout


def test_what_must_hold_is_reported_as_seen_now_and_counts(machine: Machine) -> None:
    machine.standin.play("gpus 2", "error nvmlDeviceGetTemperature 1 15")

    printed = machine.printed()

    lost = [(seen["finding"]["id"], seen["holdsS"]) for seen in printed["seenNow"] if seen["finding"]["device"] == GPU1]
    assert (f"{GPU1}/nvml-gpu-lost", 30) in lost
    assert f"{GPU1}/nvml-gpu-lost" not in [finding["id"] for finding in printed["findings"]]
    assert printed["verdict"] == "unhealthy"


def test_the_kernel_log_of_this_boot_is_judged(machine: Machine) -> None:
    machine.happened(XID_79, ago=timedelta(minutes=10))

    printed = machine.printed()

    assert [(finding["id"], finding["quarantines"]) for finding in printed["findings"]] == [(f"{GPU0}/xid-79", True)]
    assert printed["verdict"] == "unhealthy"


def test_what_has_faded_is_not_reported(machine: Machine) -> None:
    with machine.log.open("a") as log:
        log.write("2001-01-01T00:00:00+00:00 gpu-17 kernel: " + XID_79 + "\n")

    printed = machine.printed()

    assert printed["findings"] == []


def test_a_kernel_log_that_cannot_be_read_makes_it_unknown(machine: Machine) -> None:
    machine.log.unlink()

    printed = machine.printed()

    assert printed["verdict"] == "unknown"
    assert [one["source"] for one in printed["unread"]] == ["kernel log"]


def test_a_library_that_is_broken_is_unknown_and_no_fault(machine: Machine) -> None:
    machine.standin.play("error nvmlInit * 999")

    printed = machine.printed()

    assert printed["verdict"] == "unknown"
    assert "nvml" in [one["source"] for one in printed["unread"]]
    assert [gpu["state"] for gpu in printed["gpus"]] == ["not read", "not read"]


@pytest.mark.parametrize("statement", ["gpus 0", "error nvmlInit * 9", "error nvmlDeviceGetHandleByIndex * 15"])
def test_gpus_on_the_bus_that_nvml_does_not_show_make_it_unknown(machine: Machine, statement: str) -> None:
    machine.standin.play("gpus 2", statement)

    printed = machine.printed()

    assert printed["verdict"] == "unknown"
    assert [one["source"] for one in printed["unread"]] == ["nvml"]


def test_a_machine_without_gpus_is_not_blind_for_want_of_nvml(tmp_path: Path, library: Path) -> None:
    machine = Machine(tmp_path, StandIn(library, tmp_path / "script"))
    for pci in (GPU0, GPU1):
        (machine.sys.root / "bus/pci/devices" / pci).unlink()
    machine.standin.play("error nvmlInit * 9")

    printed = machine.printed()

    assert (printed["verdict"], printed["unread"]) == ("healthy", [])


@pytest.mark.slow
def test_watching_shows_what_comes(machine: Machine) -> None:
    command = [sys.executable, "-m", "healthd.cli.main", "status", "--config", str(machine.config), "--json", "--watch"]

    with subprocess.Popen(command, env=machine.standin.environ, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        before = json.loads(process.stdout.readline())
        machine.happened(XID_79)
        after = json.loads(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)

    assert (before["verdict"], after["verdict"], process.returncode) == ("healthy", "unhealthy", 130)


@pytest.mark.slow
def test_a_driver_that_hangs_is_shown_as_unknown_beside_all_the_rest(machine: Machine) -> None:
    machine.standin.play("hang nvmlInit *")

    printed = machine.printed("--timeout", "3s")

    assert printed["verdict"] == "unknown"
    assert "did not answer within" in next(one["why"] for one in printed["unread"] if one["source"] == "nvml")
    assert [port["state"] for port in printed["ports"]] == ["up", "up"]


def test_a_port_that_lost_its_link_is_down(machine: Machine) -> None:
    set_link(machine.ports[1], "1: DOWN", "2: Polling")
    (machine.ports[1] / "counters" / "link_downed").write_text("1\n")

    printed = machine.printed()

    assert [port["state"] for port in printed["ports"]] == ["up", "down"]
    assert printed["verdict"] == "unhealthy"


def test_a_rule_that_is_switched_off_says_nothing(machine: Machine) -> None:
    machine.standin.play("gpus 2", "field 145 1 * 1 1")
    with machine.config.open("a") as config:
        config.write("judge:\n  off: [nvml-row-remap-failure]\n")

    printed = machine.printed()

    assert printed["verdict"] == "healthy"


def test_a_pipe_gets_no_colours_and_each_rule_is_explained_once(machine: Machine) -> None:
    machine.standin.play("gpus 2", "field 145 * * 1 1")

    shown = machine.status().stdout

    assert "\x1b" not in shown
    assert shown.count("/nvml-row-remap-failure") == 2
    assert shown.count("Replace the part") == 2  # once in the verdict, once for both GPUs


def test_names_in_the_kernel_log_cannot_drive_the_terminal(machine: Machine) -> None:
    machine.happened(XID_79.replace("pid=1234", "pid=1234, name=a\x1b[2Jb"))

    assert "\x1b" not in machine.status().stdout


LAST_SEEN = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
LOST = Finding(
    id=f"{GPU0}/xid-79",
    device=GPU0,
    rule="xid-79",
    severity=Severity.FATAL,
    action=RepairAction.REBOOT_NODE,
    blame=Blame.DEVICE,
    message="The GPU fell off the bus.",
    raised_at=LAST_SEEN,
    last_at=LAST_SEEN,
    quarantines=True,
)


def a_report(verdict: Verdict, *findings: Finding) -> NodeHealth:
    status = NodeHealthStatus(
        verdict=verdict,
        message="as it was",
        findings=list(findings),
        inventory=[Device(pci=GPU0, index=0, name="H100")],
        nics=[Nic(pci="0000:50:00.0", port=1, device="mlx5_0", family="ib", rail=0)],
        seen_at=LAST_SEEN,
    )
    return NodeHealth(metadata=ObjectMeta(name="gpu-17"), status=status)


def test_what_an_agent_published_is_shown_without_what_was_cleared() -> None:
    cleared = msgspec.structs.replace(LOST, id="node/x", cleared_at=LAST_SEEN, cleared_by="repair")

    status = published("gpu-17", a_report(Verdict.UNHEALTHY, LOST, cleared), LAST_SEEN + timedelta(minutes=5))

    assert (status.verdict, status.findings, status.unread) == (Verdict.UNHEALTHY, [LOST], [])
    assert [gpu.pci for gpu in status.gpus] == [GPU0]
    assert [port.device for port in status.ports] == ["mlx5_0"]


@pytest.mark.parametrize(
    ("said", "is_now"), [(Verdict.HEALTHY, Verdict.UNKNOWN), (Verdict.UNHEALTHY, Verdict.UNHEALTHY)]
)
def test_an_agent_that_is_silent_takes_back_only_what_was_good(said: Verdict, is_now: Verdict) -> None:
    status = published("gpu-17", a_report(said), LAST_SEEN + timedelta(hours=5))

    assert (status.verdict, status.unread[0].source) == (is_now, "agent")


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A run on this machine with a report of one node."""

    async def fill() -> None:
        (tmp_path / "train").mkdir()
        with EmbeddedCluster.open(
            database(tmp_path / "train"), clock=ManualClock(), new_uid=counting_uids()
        ) as cluster:
            await cluster.create(NodeHealth(metadata=ObjectMeta(name="slot-2")))
            printed = msgspec.to_builtins(NodeHealthStatus(verdict=Verdict.UNHEALTHY, message="broken", seen_at=START))
            await cluster.patch(NodeHealth, "slot-2", {"status": printed}, subresource="status")

    asyncio.run(fill())
    return tmp_path / "train"


def test_a_node_is_shown_as_its_agent_published_it(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--node", "slot-2", "--state", str(state)]) == 3
    assert "slot-2 is unhealthy: broken" in capsys.readouterr().out


def test_a_node_of_which_no_one_spoke_is_a_usage_error(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--node", "slot-9", "--state", str(state)]) == 2
    assert "no agent has reported on a node 'slot-9'" in capsys.readouterr().err


def test_a_timeout_that_is_none_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--timeout", "soon"]) == 2
    assert "--timeout soon: " in capsys.readouterr().err
