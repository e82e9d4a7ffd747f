"""All metric names, log set-up, and the HTTP contract."""
