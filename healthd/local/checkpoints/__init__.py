"""The folder of checkpoints of one run: watched, remembered, written by one run only, moved aside for a fresh start."""
