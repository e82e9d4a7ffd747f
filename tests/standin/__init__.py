"""Stand-ins for what only a machine with the hardware has."""
