"""Measurements by hand: `python -m tests.bench.NAME` prints one JSON object."""
