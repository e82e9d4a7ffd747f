"""The demo in numbers: what trains, on which data, and when each fault comes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from healthd.core.api import Device
from healthd.core.config import Config, KernelLogPolicy, RecoveryPolicy, WebPolicy, format_duration
from healthd.local.machine.slots import Slot, slots_for

RUN = "demo"
"""The name of the gang."""

RECOVERY = RecoveryPolicy(
    backoff_max=timedelta(milliseconds=200),
    fault_window=timedelta(milliseconds=500),
    grace=timedelta(seconds=2),
    look_every=timedelta(milliseconds=200),
)
"""Shorter waits than the defaults: a demo must not take minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """The demo's job and its faults. Slots are numbered from 0, steps from 1."""

    ranks: int = 4
    spares: int = 2
    steps: int = 60
    every: int = 10
    """Steps between checkpoints."""
    pace: float = 0.15
    """Seconds of pause after each step: without it, a model this small would be done before anything is visible."""
    torn_at: int = 20
    """The checkpoint of this step is damaged. The GPU of `broken` is lost when it has been written."""
    broken: int = 1
    blamed: int = 2
    """The slot whose GPU reports a fault of the application, when the first recovery is over."""
    crash_at: int = 45
    """Before this step of the second attempt, the rank `crash_rank` fails by a bug of its own."""
    crash_rank: int = 3

    @property
    def slots(self) -> list[Slot]:
        """The slots for ranks, each with a made-up GPU."""
        devices = [Device(pci=f"0000:{17 * (n + 1):02x}:00.0", name="made up", index=n) for n in range(self.total)]
        return slots_for(self.ranks, devices, spares=self.spares)

    @property
    def total(self) -> int:
        """The number of all slots."""
        return self.ranks + self.spares

    @property
    def calm_arguments(self) -> list[str]:
        """The trainer's options for the run without faults."""
        return ["--steps", str(self.steps), "--every", str(self.every)]

    @property
    def story_arguments(self) -> list[str]:
        """The trainer's options for the run with faults."""
        faults = ["--torn-at", self.torn_at, "--crash-at", self.crash_at, "--crash-rank", self.crash_rank]
        return [*self.calm_arguments, "--pace", str(self.pace), *map(str, faults), "--crash-attempt", "1"]

    def lost_gpu(self) -> str:
        """The driver's message when the GPU of slot `broken` is lost."""
        who = "pid='<unknown>', name=<unknown>"
        return f"NVRM: Xid (PCI:{self.address(self.broken)}): 79, {who}, GPU has fallen off the bus."

    def bad_access(self) -> str:
        """The driver's message when a program reads an invalid address, here on the GPU of slot `blamed`."""
        return (
            f"NVRM: Xid (PCI:{self.address(self.blamed)}): 31, pid=4242, name=python, Ch 00000010, intr 00000000. "
            "MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_3 faulted @ 0x7f2c_a4000000. "
            "Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ"
        )

    def address(self, slot: int) -> str:
        """The PCI address of a slot's GPU as the driver prints it: without the function."""
        return self.slots[slot].devices[0].pci.removesuffix(".0")

    def node(self, slot: int) -> str:
        """The name of a slot."""
        return self.slots[slot].name


SLOW = 0.5
"""The value of `pace` for people who want to watch."""


def config(*, trust_user_space: bool, web: str = "") -> Config:
    """healthd's configuration in the demo. *web* is the address of the live page; empty: there is none."""
    return Config(
        recovery=RECOVERY, kernel_log=KernelLogPolicy(trust_user_space=trust_user_space), web=WebPolicy(address=web)
    )


def changed_settings() -> str:
    """The settings in which the demo differs from a real run, in one line."""
    names = ("backoff_max", "fault_window", "grace", "look_every")
    return ", ".join(f"recovery.{name} {format_duration(getattr(RECOVERY, name))}" for name in names)


@dataclass(frozen=True, slots=True)
class DemoFolders:
    """The folders of one demo."""

    root: Path

    @property
    def calm(self) -> Path:
        """Checkpoints of the run without faults."""
        return self.root / "undisturbed"

    @property
    def checkpoints(self) -> Path:
        """Checkpoints of the run with faults."""
        return self.root / "checkpoints"

    @property
    def state(self) -> Path:
        """The state of healthd, with the logs of the ranks."""
        return self.root / "state"

    def log_of_rank_0(self, attempt: int) -> Path:
        """The log file of rank 0."""
        return self.state / "logs" / f"attempt-{attempt}" / "rank-0.log"
