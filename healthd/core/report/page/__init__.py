"""What the live page shows, as a function of a snapshot and `now`: rows that are also those of `healthd top`."""
