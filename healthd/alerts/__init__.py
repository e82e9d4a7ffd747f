"""Alert services: one module for each, behind the protocol in `healthd.alerts.sink`."""
