"""
The Grafana dashboards as Python, one module for each. `python -m tests.grafana.dashboards` writes grafana/dashboards.

`model` says what a dashboard is made of, `schema` makes JSON of it, `panels` says what each kind of panel looks like,
and `promql` holds expressions that several panels need. The JSON has Grafana's classic schema.
"""
