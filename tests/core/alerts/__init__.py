"""The core of alerts."""
