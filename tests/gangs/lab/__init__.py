"""Gangs whose own controllers are the real ones."""
