"""The hands that a configuration chooses: those of the site's own file, and those that healthd knows."""

from __future__ import annotations

from pathlib import Path

from healthd.cli.errors import UserError
from healthd.core.config import RemediationPolicy
from healthd.core.remediation.hands.description import HandDescription
from healthd.core.remediation.hands.shipped import BadHand, check_names, chosen_hands, read_hands, shipped_hands


def read_own(file: Path) -> tuple[HandDescription, ...]:
    """The hands in *file*. Raises UserError."""
    try:
        return read_hands(file.read_bytes())
    except (OSError, BadHand) as error:
        raise UserError(f"{file}: {error}") from None


def with_shipped(own: tuple[HandDescription, ...]) -> tuple[HandDescription, ...]:
    """*own* and then those that healthd knows, unless one of the same name takes their place."""
    names = {hand.name for hand in own}
    return (*own, *(hand for hand in shipped_hands() if hand.name not in names))


def hands_of(policy: RemediationPolicy) -> tuple[tuple[HandDescription, ...], tuple[HandDescription, ...]]:
    """The chosen hands in their order, and all that are known. Raises UserError."""
    own = read_own(Path(policy.hands_file)) if policy.hands_file else ()
    try:
        check_names(policy.hands, policy.at_once, own)
    except ValueError as error:
        raise UserError(f"remediation.{error}") from None
    return chosen_hands(policy.hands, own), with_shipped(own)
