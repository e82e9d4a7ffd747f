"""The one error that a command shows to a person as a plain line, without a traceback."""

from __future__ import annotations


class UserError(Exception):
    """What was asked for cannot be done; the text says what is wrong, where, and what to do. Exit code 2."""
