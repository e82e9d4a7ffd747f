"""
Files at paths that a controller has hard-wired: put there for its process alone, in a mount namespace of its own.

Needs root, or user namespaces that everybody may make.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path


class CannotMount(Exception):
    """This machine does not let us make a mount namespace; says why."""


def with_mounts(mounts: Sequence[tuple[Path, str]], command: Sequence[str]) -> list[str]:
    """
    *command*, with the folders of *mounts* at other paths for its process; in the order in which they are mounted.

    Raises CannotMount.
    """
    if reason := why_not():
        raise CannotMount(reason)
    steps = [f"mount --rbind {shlex.quote(str(folder))} {shlex.quote(at)}" for folder, at in mounts]
    return [*_unshare(), "sh", "-c", " && ".join([*steps, 'exec "$@"']), "sh", *command]


@cache
def why_not() -> str:
    """Why this machine cannot do it; empty when it can."""
    if shutil.which("unshare") is None:
        return "there is no program unshare"
    done = subprocess.run(
        [*_unshare(), "mount", "--rbind", "/proc", "/tmp"],
        capture_output=True,
        text=True,
        check=False,
    )
    return f"no mount namespace can be made: {done.stderr.strip()}" if done.returncode else ""


def _unshare() -> list[str]:
    return ["unshare", "--mount", *(() if os.geteuid() == 0 else ("--map-root-user",))]
