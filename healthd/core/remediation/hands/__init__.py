"""Hands: what a site has that resets, reboots or replaces a node, described as data."""
