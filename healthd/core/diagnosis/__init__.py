"""Judges what the machine reports: kernel lines, Xids and readings become findings."""
