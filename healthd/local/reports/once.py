"""Log a lasting error once, not at every try: a full disk must not fill the log as well."""

from __future__ import annotations


class Once:
    """The errors that were logged and are not over, by their subject."""

    def __init__(self) -> None:
        self._logged: dict[str, str] = {}

    def is_new(self, about: str, trouble: str) -> bool:
        """Whether *trouble* differs from the last error logged for *about*. It counts as logged from now on."""
        before, self._logged[about] = self._logged.get(about), trouble
        return before != trouble

    def over(self, about: str) -> None:
        """The subject works again: its next error is logged."""
        self._logged.pop(about, None)
