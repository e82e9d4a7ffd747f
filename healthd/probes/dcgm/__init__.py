"""
A second witness of the GPUs: `exporter` scrapes a dcgm-exporter through `web`; `fields` says what its metrics become.
"""
