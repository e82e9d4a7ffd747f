"""
Hours of history for the dashboards, in seconds and the same each time: real agents and controllers on a turned clock.

`stage` puts them together from `agents` and `stores`, `story` says what happens to them, `exporters` is what other
exporters would show of the same cluster, `scrapes` writes it all down, and `prometheus` has a real Prometheus serve it.
"""
