"""Labels of a Node that the hand of a reset needs, so that it has the GPUs for itself."""

from __future__ import annotations

PLUGIN, ON, PAUSED = "example.com/device-plugin", "on", "paused"
"""While it is not on, the node offers no GPU."""
HOLDS = "example.com/hand"
"""Lets the hand in."""
