"""Tests of reading pickles as data."""
