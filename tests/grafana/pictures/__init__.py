"""
Pictures of the dashboards for the docs: each panel drawn from what a real Prometheus answers.

Not Grafana: `canvas` writes SVG, `units` writes numbers, `over_time`, `bands` and `numbers` draw the kinds of panels,
and `page` puts them together. `python -m tests.grafana.pictures` writes docs/monitoring/dashboards.
"""
