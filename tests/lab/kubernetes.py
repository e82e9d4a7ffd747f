"""
The version of Kubernetes that the lab runs: DEFAULT, or the one that $LAB_KUBERNETES names.

Each version has its pins in `go/kubernetes-VERSION.mod`, and its own program in the cache: several lie side by side.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

DEFAULT = "1.37"
SOURCE = Path(__file__).parent / "go"
VARIABLE = "LAB_KUBERNETES"

_PINS = re.compile(r"kubernetes-(\d+\.\d+)\.mod")
_PINNED = re.compile(r"^\tk8s\.io/kubernetes (v\S+)$", re.MULTILINE)


def versions() -> list[str]:
    """Those with pins, such as `1.37`, the oldest first."""
    found = [match[1] for path in SOURCE.iterdir() if (match := _PINS.fullmatch(path.name))]
    return sorted(found, key=_minor)


def chosen(environment: Mapping[str, str] = os.environ) -> str:
    """The version to run, such as `1.37`. Ends the program (SystemExit) when there are no pins for the one named."""
    version = environment.get(VARIABLE) or DEFAULT
    if version not in versions():
        raise SystemExit(f"lab: ${VARIABLE} is {version!r}, and the lab builds only {', '.join(versions())}")
    return version


def pins(version: str) -> str:
    """The file that `go -modfile` reads; its checksums lie beside it."""
    return f"kubernetes-{version}.mod"


def release(version: str) -> str:
    """The release that is pinned, such as `v1.37.1`."""
    found = _PINNED.search((SOURCE / pins(version)).read_text())
    if found is None:
        raise ValueError(f"no k8s.io/kubernetes in {pins(version)}")
    return found[1]


def _minor(version: str) -> int:
    return int(version.partition(".")[2])


VERSION = chosen()
RELEASE = release(VERSION)
"""What the programs say that they are."""
HAS_MUTATING_POLICIES = _minor(VERSION) >= _minor("1.36")
"""MutatingAdmissionPolicy is served as v1, which deploy/admission-gangs.yaml needs."""
