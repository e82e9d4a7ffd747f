"""
Explains a gang without an incident: what a fault would cost. The other half of `healthd explain`.

Only computes. When a value is unknown, the text says so, with the reason if the root shows one.
"""

from __future__ import annotations

from healthd.core.api.save_stats import NO_SAVES
from healthd.core.checkpoint.restart_cost import Stake
from healthd.core.recovery.gang import Ending, Root, left_stopped
from healthd.core.recovery.recovery_status import gang_text
from healthd.core.recovery.terms import KUBERNETES
from healthd.core.report.explain_text import Section, next_fault, wrap


def tell_calm(root: Root, stake: Stake | None, *, width: int = 100) -> list[Section]:
    """A headline, and the cost of the first fault."""
    headline = Section(f"{_named(root)}: no recovery so far", [])
    if stake is not None:
        return [headline, next_fault(stake, width, root.terms)]
    return [headline, Section("The next fault", list(wrap(f"what it would cost is not known: {_why(root)}", width)))]


def _named(root: Root) -> str:
    if root.terms is KUBERNETES:
        return f"{gang_text(root.ref)} in {root.ref.namespace}"
    return f"{root.terms.gang} {root.ref.name}"


def _why(root: Root) -> str:
    options, doctor = root.options, f"`healthd doctor {gang_text(root.ref)}`"
    if root.invalid:
        return f"healthd does nothing to this {root.terms.gang}, as it cannot be read: {'; '.join(root.invalid)}"
    if root.ending is not Ending.NOT_ENDED or root.deleting:
        return f"the {root.terms.gang} has ended"
    if why := left_stopped(root, ()):
        return why
    if root.suspended or not root.has_begun:
        return f"the {root.terms.gang} does not run"
    if not options.restart or not options.checkpoint:
        return f"healthd was not asked to restart it, or not told where it saves; {doctor} says what to do"
    if root.saves == NO_SAVES and root.terms is not KUBERNETES:
        return "its checkpoints have not been looked at since it started; that takes a minute or two"
    if root.saves == NO_SAVES:
        return "nobody has looked at its checkpoints yet, or the controller cannot read them where it is"
    return f"nothing tells when it was set going; {doctor} may know more"
