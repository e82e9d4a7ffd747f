"""Where checkpoints are: file systems and buckets, behind one contract (`store.py`)."""
