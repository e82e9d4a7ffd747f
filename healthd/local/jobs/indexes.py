"""
Sets of completion indexes as Kubernetes writes them: `0-2,5`.
"""

from __future__ import annotations

from collections.abc import Iterable


def parse_indexes(text: str) -> set[int]:
    """`0-2,5` as numbers. Raises ValueError."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def format_indexes(indexes: Iterable[int]) -> str:
    """Numbers as `0-2,5`; two in a row are written `0,1`, as Kubernetes does."""
    runs: list[list[int]] = []
    for index in sorted(indexes):
        if runs and runs[-1][-1] == index - 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    return ",".join(f"{r[0]}-{r[-1]}" if len(r) > 2 else ",".join(map(str, r)) for r in runs)
