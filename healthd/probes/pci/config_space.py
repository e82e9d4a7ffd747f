"""
What the config space of a PCI Express port shows about peer-to-peer traffic. Pure.

The layout is that of the PCI Express Base Specification, as `linux/pci_regs.h` names it.
"""

from __future__ import annotations

_FIRST = 0x100
"""Where extended capabilities begin."""
_ACS = 0x000D
_ACS_CONTROL = 6
_REDIRECTS = 0x0004 | 0x0008
"""Redirect of requests and of completions."""


def redirects_peers(space: bytes) -> bool | None:
    """Whether the port sends peer-to-peer traffic up to the processor. None: *space* does not show it, or no ACS."""
    offset, seen = _FIRST, set[int]()
    while _FIRST <= offset <= len(space) - 8 and offset not in seen:
        seen.add(offset)
        header = int.from_bytes(space[offset : offset + 4], "little")
        if header & 0xFFFF == _ACS:
            at = offset + _ACS_CONTROL
            return bool(int.from_bytes(space[at : at + 2], "little") & _REDIRECTS)
        offset = header >> 20
    return None
