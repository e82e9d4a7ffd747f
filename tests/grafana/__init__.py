"""The rules for Prometheus, under promtool and against the metrics that healthd has."""
