"""Hangs: what each member of a gang does second by second, and when all of them have stopped doing it."""
