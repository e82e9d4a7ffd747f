"""Tests of the witnesses that are asked about a gang that hangs."""
