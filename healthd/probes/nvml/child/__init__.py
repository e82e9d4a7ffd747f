"""
The programs that call NVML, started by path: `inventory` prints one answer and ends, `watch` writes one after another.

They must start fast and stay small: they import the standard library, the binding and each other (`gpu`, `fields`).
"""
