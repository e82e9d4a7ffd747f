"""
Resets all GPUs of a machine together, once nothing uses them, and proves that each is there again.

Persistence mode, which keeps the driver attached, is switched off before and on again after, whatever came of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from healthd.core.remediation.node_hand import (
    Client,
    Code,
    DriverGpu,
    Ending,
    Unreadable,
    computing,
    is_another_boot,
    lost,
    parse_gpus,
    parse_pids,
    refusal,
    with_contexts,
)
from healthd.hand.host import CannotSee, Host

EVERY = 2.0
"""Seconds between two looks at who uses the GPUs."""
LOOKS = 90
"""For three minutes: the GPU operator's pods have half a minute to end, once their DaemonSets let go of the node."""
LISTING_S = 60.0
"""Longest time for one answer of nvidia-smi: without persistence mode the driver initialises every GPU for it."""
RESET_S = 180.0
"""Longest time for the reset of all GPUs. The pod may take thirteen minutes, and all of these together take less."""
WHAT = "the reset"
_LIST = ("--query-gpu=pci.bus_id,persistence_mode", "--format=csv,noheader")
_PIDS = ("--query-compute-apps=pid", "--format=csv,noheader")


def reset_gpus(host: Host, boot_id: str, sleep: Callable[[float], None]) -> Ending:
    """Do it, or say why not. *boot_id*: the boot in which it was decided. Raises nothing but what ends the process."""
    try:
        if why := is_another_boot(boot_id, host.boot_id()):
            return Ending(Code.DONE, why)
        expected = host.gpus()
        if not expected:
            return Ending(Code.REFUSED, f"{WHAT} was refused: the driver nvidia has no GPU on this machine")
        if why := refusal(computing(_clients(host)), WHAT):
            return Ending(Code.REFUSED, why)
        with _without_persistence(host):
            clients = _once_free(host, sleep)
            if why := refusal(clients, WHAT):
                return Ending(Code.REFUSED, why)
            return _reset(host, expected)
    except CannotSee as error:
        return Ending(Code.REFUSED, f"{WHAT} was refused: it cannot be seen whether it would do harm: {error}")


def _clients(host: Host) -> list[Client]:
    """By what the processes have open, and by the driver where that answers. Raises CannotSee."""
    clients = host.clients()
    with suppress(Unreadable):  # a GPU that needs a reset may keep the driver from listing anything
        return with_contexts(clients, parse_pids(_ask(host, *_PIDS)))
    return clients


def _once_free(host: Host, sleep: Callable[[float], None]) -> list[Client]:
    """Who uses the GPUs still, after they had time to let go: what computes has none."""
    clients = host.clients()
    for _ in range(LOOKS):
        if not clients or computing(clients):
            break
        sleep(EVERY)
        clients = host.clients()
    return clients


@contextmanager
def _without_persistence(host: Host) -> Iterator[None]:
    listed = _listed(host) or []
    persistent = [gpu for gpu in listed if gpu.is_persistent]
    try:
        if persistent:
            host.run("nvidia-smi", "--persistence-mode=0", seconds=LISTING_S)
        yield
    finally:
        if persistent:
            only = [f"--id={','.join(gpu.pci for gpu in persistent)}"] if len(persistent) < len(listed) else []
            host.run("nvidia-smi", "--persistence-mode=1", *only, seconds=LISTING_S)


def _reset(host: Host, expected: Sequence[str]) -> Ending:
    done = host.run("nvidia-smi", "--gpu-reset", seconds=RESET_S)
    if done.status is None:
        return Ending(Code.FAILED, f"nvidia-smi --gpu-reset did not end in {RESET_S:.0f} s")
    if done.status:
        return Ending(Code.FAILED, f"nvidia-smi --gpu-reset ended with code {done.status}: {done.last_line}")
    found = _listed(host)
    if found is None:
        return Ending(Code.FAILED, "the GPUs were reset, and nvidia-smi lists none since")
    if missing := lost(expected, [gpu.pci for gpu in found]):
        return Ending(Code.FAILED, f"the GPUs were reset, and nvidia-smi does not list {', '.join(missing)} since")
    return Ending(Code.DONE, f"{len(expected)} GPUs were reset, and nvidia-smi lists all of them")


def _listed(host: Host) -> list[DriverGpu] | None:
    """The GPUs that the driver lists; None where it does not answer properly. Raises CannotSee."""
    try:
        return parse_gpus(_ask(host, *_LIST))
    except Unreadable:
        return None


def _ask(host: Host, *options: str) -> str:
    answer = host.run("nvidia-smi", *options, seconds=LISTING_S)
    if answer.status != 0:
        raise Unreadable(answer.last_line)
    return answer.output
