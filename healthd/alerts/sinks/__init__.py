"""One module for each alert service. `healthd.alerts.registry` has the table of them."""
