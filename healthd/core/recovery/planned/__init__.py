"""Restarts that healthd chooses, of gangs that have no fault: to grow back, or to leave a node. Pure."""
