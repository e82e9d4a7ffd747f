"""Incidents: what on-call hears of, one for each cause."""
