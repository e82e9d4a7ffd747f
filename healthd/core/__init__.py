"""The decisions: pure functions of a snapshot and `now`. No I/O, no clock, no randomness."""
