"""
The packages of the image: `python -m tests.deploy.image_lock > deploy/requirements.lock`, as `make lock` does.

What this environment has of all that healthd needs in a pod, with the packages that those need in turn.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.metadata import distribution

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.deploy.manifests import DEPLOY

LOCK = DEPLOY / "requirements.lock"
HEADER = """\
# What the image has of requirements.lock: all that pods need, with checkpoints in buckets. Pods read no kubeconfig and
# complete no command, so the packages `kubernetes` and `argcomplete` are not among it. Written by `make lock`.
"""
LEFT_OUT = {"argcomplete", "kubernetes"}


def image_lock() -> str:
    """The text of the file."""
    names = set(_needed("healthd", frozenset({"s3"}))) - {"healthd"}
    pins = sorted(f"{distribution(name).name}=={distribution(name).version}" for name in names)
    return HEADER + "".join(f"{pin}\n" for pin in sorted(pins, key=str.lower))


def _needed(name: str, extras: frozenset[str] = frozenset()) -> Iterator[str]:
    yield name
    for text in distribution(name).requires or ():
        requirement = Requirement(text)
        wanted = any(requirement.marker is None or requirement.marker.evaluate({"extra": e}) for e in extras or {""})
        if wanted and requirement.name not in LEFT_OUT:
            yield from _needed(canonicalize_name(requirement.name), frozenset(requirement.extras))


if __name__ == "__main__":
    sys.stdout.write(image_lock())
