"""The checkpoints of a gang: verification, the pre-check, the cost of a restart."""
