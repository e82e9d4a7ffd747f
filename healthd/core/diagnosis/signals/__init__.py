"""Judges what probes read: rules are data, one engine turns readings into findings. Pure."""
