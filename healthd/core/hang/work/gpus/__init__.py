"""The GPUs of a gang as a reason for its stragglers: how fast they run, and whether they wait for their hosts."""
