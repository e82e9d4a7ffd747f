"""Gangs that hang or are slow, by what their agents publish: what is recorded, and what follows from it."""
