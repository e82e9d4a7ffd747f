"""What people and programs learn of a run: its log, its lines at the terminal, notifications, alerts, the page."""
