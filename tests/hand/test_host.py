"""What a machine shows by its files, and how its own programs are run."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from healthd.core.remediation.node_hand import Client
from healthd.hand.host import CannotSee, Machine
from tests.hand.machines import BOOT

POD = "0b1c2d3e-4f50-6172-8394-a5b6c7d8e9f0"
SHOWS = """
#include <stdio.h>
int main(int count, char **words) {
    char line[64] = "";
    fgets(line, sizeof line, fopen("/etc/hostname", "r"));
    printf("%s %s on %s", words[0], words[1], line);
    return 7;
}
"""


def a_function(root: Path, pci: str, *, code: str = "0x030200", vendor: str = "0x10de", driver: str = "nvidia") -> None:
    folder = root / "sys/bus/pci/devices" / pci
    folder.mkdir(parents=True)
    (folder / "class").write_text(f"{code}\n")
    (folder / "vendor").write_text(f"{vendor}\n")
    if driver:
        (root / "sys/bus/pci/drivers" / driver).mkdir(parents=True, exist_ok=True)
        (folder / "driver").symlink_to(f"../../drivers/{driver}")


def a_process(proc: Path, pid: int, name: str, *opened: str, killed: str = "0", group: str = "0::/") -> None:
    folder = proc / str(pid)
    (folder / "fd").mkdir(parents=True)
    (folder / "comm").write_text(f"{name}\n")
    (folder / "cgroup").write_text(f"{group}\n")
    (folder / "status").write_text(f"Name:\t{name}\nSigPnd:\t{0:016x}\nShdPnd:\t{int(killed, 16):016x}\n")
    for number, target in enumerate(opened):
        (folder / "fd" / str(number)).symlink_to(target)


def test_the_gpus_are_the_functions_that_the_driver_has(tmp_path: Path) -> None:
    a_function(tmp_path, "0000:af:00.0")
    a_function(tmp_path, "0000:3b:00.0", code="0x030000")
    a_function(tmp_path, "0000:01:00.0", code="0x030000", vendor="0x1a03", driver="ast")
    a_function(tmp_path, "0000:c1:00.0", driver="vfio-pci")
    a_function(tmp_path, "0000:c2:00.0", driver="")
    a_function(tmp_path, "0000:d1:00.0", code="0x068000")

    assert Machine(tmp_path).gpus() == ["0000:3b:00.0", "0000:af:00.0"]


def test_a_client_is_what_has_a_gpu_open_and_what_has_uvm_open_computes(tmp_path: Path) -> None:
    a_process(tmp_path, 10, "bash", "/dev/null", "/dev/nvidiactl", "/dev/nvidia-nvswitchctl")
    a_process(tmp_path, 20, "healthd", "/dev/nvidiactl", "/dev/nvidia0", group=f"0::/kubepods/pod{POD}/x")
    a_process(tmp_path, 30, "nv-hostengine", "/dev/nvidia0", "/dev/nvidia-uvm")
    a_process(tmp_path, 7, "python3", "/dev/nvidia12", "/dev/nvidia-uvm", killed="100")
    a_process(tmp_path, os.getpid(), "healthd", "/dev/nvidia0")
    (tmp_path / "meminfo").write_text("")

    assert Machine(tmp_path, proc=tmp_path).clients() == [
        Client(pid=7, name="python3", computes=True, is_killed=True),
        Client(pid=20, name="healthd", pod=POD),
        Client(pid=30, name="nv-hostengine"),
    ]


def test_a_process_that_ended_meanwhile_is_no_client(tmp_path: Path) -> None:
    (tmp_path / "99").mkdir()

    assert Machine(tmp_path, proc=tmp_path).clients() == []


def test_what_cannot_be_read_is_not_taken_for_nothing(tmp_path: Path) -> None:
    (tmp_path / "99").mkdir()
    (tmp_path / "99" / "fd").write_text("")

    with pytest.raises(CannotSee, match="what process 99 has open"):
        Machine(tmp_path, proc=tmp_path).clients()
    with pytest.raises(CannotSee, match="the PCI devices of the machine"):
        Machine(tmp_path).gpus()
    with pytest.raises(CannotSee, match="the boot id of the machine"):
        Machine(tmp_path).boot_id()
    with pytest.raises(CannotSee, match="systemctl: the machine has it in none of /usr/bin"):
        Machine(tmp_path).run("systemctl", "reboot", seconds=1)


def test_the_boot_is_that_of_the_machine(tmp_path: Path) -> None:
    file = tmp_path / "proc/sys/kernel/random/boot_id"
    file.parent.mkdir(parents=True)
    file.write_text(f"{BOOT}\n")

    assert Machine(tmp_path).boot_id() == BOOT


@pytest.mark.parametrize("place", ["usr/bin", "run/nvidia/driver/usr/bin"])
def test_a_program_of_the_machine_runs_in_its_own_root(tmp_path: Path, place: str) -> None:
    if os.geteuid() or not (compiler := shutil.which("cc")):
        pytest.skip("chroot needs root, and the program a C compiler")
    root = tmp_path / place.removesuffix("usr/bin")
    (tmp_path / place).mkdir(parents=True)
    (root / "etc").mkdir()
    (root / "etc/hostname").write_text("gpu-17")
    (tmp_path / "shows.c").write_text(SHOWS)
    program = tmp_path / place / "shows"
    subprocess.run([compiler, "-static", "-w", "-o", program, tmp_path / "shows.c"], check=True)

    done = Machine(tmp_path).run("shows", "all", seconds=20)

    assert (done.status, done.output) == (7, "/usr/bin/shows all on gpu-17")
