"""How numbers read, by Grafana's names of units."""

from __future__ import annotations

import math

_STEPS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_TIMES = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200, 86400)
"""Steps in seconds that read well."""
_AFTER = {
    "watt": " W",
    "celsius": " °C",
    "Bps": "B/s",
    "bytes": "B",
    "decmbytes": "B",
    "pps": " p/s",
    "short": "",
    "percent": " %",
}


def written(value: float, unit: str, decimals: int | None = None) -> str:
    """*value* for a person, such as `3.2 min` or `75 %`."""
    if math.isnan(value):
        return "NaN"
    if unit == "s":
        return _duration(value)
    if unit == "percentunit":
        return f"{_plain(100 * value, 1)} %"
    if unit == "decmbytes":
        value *= 1e6
    scaled, letter = _scaled(value)
    gap = " " if unit in ("Bps", "bytes", "decmbytes") else ""
    digits = decimals if decimals is not None and not letter else 1 if letter or abs(value) >= 1 else 2
    return f"{_plain(scaled, digits)}{gap}{letter}{_AFTER.get(unit, '')}"


def ticks(low: float, high: float, unit: str = "", most: int = 4) -> list[float]:
    """Round numbers from *low* to at least *high*."""
    if high <= low:
        high = low + 1
    rough = (high - low) / most
    if unit == "s" and (step := next((one for one in _TIMES if one >= rough * 0.999), 0)):
        return [low + number * step for number in range(math.ceil((high - low) / step - 1e-9) + 1)]
    power = 10.0 ** math.floor(math.log10(rough))
    nice = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999)
    count = math.ceil((high - low) / nice - 1e-9)
    return [low + number * nice for number in range(count + 1)]


def _scaled(value: float) -> tuple[float, str]:
    for size, letter in _STEPS:
        if abs(value) >= size:
            return value / size, letter
    return value, ""


def _duration(seconds: float) -> str:
    for size, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if abs(seconds) >= size:
            return f"{_plain(seconds / size, 1)} {name}"
    return f"{_plain(seconds, 1)} s" if abs(seconds) >= 1 or not seconds else f"{_plain(1000 * seconds, 1)} ms"


def _plain(value: float, digits: int) -> str:
    found = f"{value:.{digits}f}"
    return found.rstrip("0").rstrip(".") if "." in found else found
