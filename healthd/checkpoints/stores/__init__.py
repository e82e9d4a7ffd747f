"""Locations of checkpoints: file systems and buckets, behind one contract (`store.py`)."""
