"""Tests of `healthd.checks`."""
