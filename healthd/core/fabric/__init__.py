"""Compares the ports of one rail over all nodes."""
