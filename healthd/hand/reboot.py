"""
Has the systemd of a machine reboot it: in the boot that was decided on, and in no other one.

So the same request never boots a machine twice, however often its pod is started.
"""

from __future__ import annotations

from healthd.core.remediation.node_hand import Code, Ending, ended_by_reboot, is_another_boot, refusal
from healthd.hand.host import CannotSee, Host

ASKING_S = 60.0
"""Longest time for systemd to take the request. It stops the services, this pod among them, and then boots."""
WHAT = "the reboot"


def reboot(host: Host, boot_id: str) -> Ending:
    """Do it, or say why not. *boot_id*: the boot in which it was decided. Raises nothing but what ends the process."""
    try:
        if why := is_another_boot(boot_id, host.boot_id()):
            return Ending(Code.DONE, why)
        if why := refusal(ended_by_reboot(host.clients()), WHAT):
            return Ending(Code.REFUSED, why)
        asked = host.run("systemctl", "reboot", seconds=ASKING_S)
    except CannotSee as error:
        return Ending(Code.REFUSED, f"{WHAT} was refused: it cannot be seen whether it would do harm: {error}")
    if asked.status is None:
        return Ending(Code.FAILED, f"systemctl reboot did not end in {ASKING_S:.0f} s")
    if asked.status:
        return Ending(Code.FAILED, f"systemctl reboot ended with code {asked.status}: {asked.last_line}")
    return Ending(Code.DONE, "systemd was asked to reboot the machine")
