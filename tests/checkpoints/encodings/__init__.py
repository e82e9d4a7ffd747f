"""Tests of how bytes are laid out in files."""
