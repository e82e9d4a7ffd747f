"""
How fast copies between host and GPU must be, by generation and lanes of the PCIe link. Data.

Line rates are those of the PCI Express Base Specification 6.0 (2.5 to 64 GT/s a lane, less the 8b/10b, 128b/130b or
flit encoding). Packet headers cost up to a tenth of it. Published results of NVIDIA's nvbandwidth are 79 to 88 % of it
(12.4, 25.2 and 55.4 GB/s of generations 3, 4 and 5 with 16 lanes). Links that trained to half their width or to the
generation below reach half of that, so a limit of 70 % tells them apart.
"""

from __future__ import annotations

LANE_GBPS = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}
"""Gigabytes a second of one lane and direction, by generation."""
SHARE = 0.7


def line_rate(generation: float, lanes: float) -> float:
    """GB/s in one direction. 0 for an unknown generation."""
    return LANE_GBPS.get(int(generation), 0.0) * lanes


def least(generation: float, lanes: float) -> float:
    """GB/s that a copy must reach."""
    return SHARE * line_rate(generation, lanes)
