"""One adapter per gang kind: how its root is stopped, started and read."""
