"""Checkpoints in stores that are not a disk of this machine."""
