"""The decisions of healthd: pure functions of a snapshot and `now`. No I/O, no clock, no randomness."""
