"""
A second witness of the GPUs: `exporter` scrapes a dcgm-exporter through `web`; `fields` turns its metrics into
readings.
"""
