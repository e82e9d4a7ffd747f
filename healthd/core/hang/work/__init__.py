"""How much of its time each rank works, and which one makes the others wait."""
