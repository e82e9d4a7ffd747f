"""Say a trouble that lasts once, not at every try: a full disk must not fill the log as well."""

from __future__ import annotations


class Once:
    """The troubles that were told and are not over, by what they are about."""

    def __init__(self) -> None:
        self._told: dict[str, str] = {}

    def is_new(self, about: str, trouble: str) -> bool:
        """Whether *trouble* is another one than was last told; from now on it is told."""
        before, self._told[about] = self._told.get(about), trouble
        return before != trouble

    def over(self, about: str) -> None:
        """It works again: the next trouble is a new one."""
        self._told.pop(about, None)
