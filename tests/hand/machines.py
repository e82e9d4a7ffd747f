"""A machine with GPUs, as a hand sees it: who uses them, and what its programs answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from healthd.checks.programs import ProgramResult
from healthd.core.remediation.node_hand import Client
from healthd.hand.host import CannotSee

BOOT = "11111111-2222-3333-4444-555555555555"
GPUS = ("0000:3b:00.0", "0000:af:00.0")
OK = ProgramResult(0, "")


@dataclass
class FakeMachine:
    """All well, and in use by nothing. *after_reset*: the GPUs that come back."""

    boot: str = BOOT
    pcis: tuple[str, ...] = GPUS
    users: list[Client] = field(default_factory=list)
    pids: set[int] = field(default_factory=set)
    """What the driver says that computes."""
    persistent: set[str] = field(default_factory=set)
    answers: dict[str, ProgramResult] = field(default_factory=dict)
    """By the words of a command: what it answers instead of the usual."""
    has_programs: bool = True
    after_reset: tuple[str, ...] = GPUS
    done: list[str] = field(default_factory=list)
    """The commands that change something, in this order."""

    def boot_id(self) -> str:
        return self.boot

    def gpus(self) -> list[str]:
        return list(self.pcis)

    def clients(self) -> list[Client]:
        daemon = [Client(pid=2, name="nvidia-persiste")] if self.persistent else []
        return [*daemon, *self.users]

    def run(self, *command: str, seconds: float) -> ProgramResult:
        if not self.has_programs:
            raise CannotSee(f"{command[0]}: the machine has it in none of /usr/bin")
        line = " ".join(command)
        if "--query" not in line:
            self.done.append(line)
        return next((answer for words, answer in self.answers.items() if words in line), None) or self._usual(line)

    def _usual(self, line: str) -> ProgramResult:
        if "--query-gpu" in line:
            modes = (f"0000{pci.upper()}, {'Enabled' if pci in self.persistent else 'Disabled'}\n" for pci in self.pcis)
            return ProgramResult(0, "".join(modes))
        if "--query-compute-apps" in line:
            return ProgramResult(0, "".join(f"{pid}\n" for pid in sorted(self.pids)))
        if "--persistence-mode" in line:
            self.persistent = set() if "=0" in line else set(GPUS)
        if "--gpu-reset" in line:
            self.pcis = self.after_reset
        return OK


def after(looks: int, then: Callable[[], None]) -> Callable[[float], None]:
    """A sleep that returns at once, and after so many calls does *then*."""
    count = 0

    def sleep(_seconds: float) -> None:
        nonlocal count
        count += 1
        if count == looks:
            then()

    return sleep
