"""
The lab for people: a control plane that stays until it is taken down.

What `up` started is found again by its processes' numbers and start times, so `down` also cleans up after a crash, and
never ends a process that it did not start.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.lab import control_plane
from tests.lab.build import CannotBuild, binaries
from tests.lab.control_plane import STATE, ControlPlane, Options
from tests.lab.jobset import start_jobset
from tests.lab.kubernetes import RELEASE
from tests.lab.programs import LabError, is_abandoned, running
from tests.lab.real import nodes as real
from tests.lab.real.prerequisites import why_not
from tests.lab.simulated import SimulatedNodes

SHORTEST_GRACE = 20
"""Seconds."""

_ABOUT = """\
A real Kubernetes control plane on this machine, for trying things out.

  python -m tests.lab up --nodes 500   start one, with simulated nodes; it stays until you take it down
  python -m tests.lab status           say what runs
  python -m tests.lab down             end everything and remove every trace, also after a crash
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; answers the exit status."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.command(options))
    except (LabError, CannotBuild) as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m tests.lab", description=_ABOUT, formatter_class=form)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    up = commands.add_parser("up", help="start a control plane that stays")
    up.add_argument("--nodes", type=int, default=0, metavar="N", help="simulated nodes with 8 GPUs each; default 0")
    up.add_argument("--real", type=int, default=0, metavar="N", help="nodes with a real kubelet, up to 3; default 0")
    up.add_argument("--jobset", action="store_true", help="also run the JobSet controller")
    up.add_argument(
        "--node-grace",
        type=_seconds,
        metavar="SECONDS",
        help="call a node NotReady that is silent for so long, 20 or more; default: never. Without it a kubelet that "
        "you kill is not missed",
    )
    up.set_defaults(command=_up)
    commands.add_parser("status", help="say what runs").set_defaults(command=_status)
    commands.add_parser("down", help="end everything and clean up").set_defaults(command=_down)
    return parser


def _seconds(text: str) -> int:
    """Kubelets say every ten seconds that they live; on a busy machine one word may be late."""
    if not text.isdecimal() or int(text) < SHORTEST_GRACE:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from {SHORTEST_GRACE} on")
    return int(text)


def _up(options: argparse.Namespace) -> int:
    if _standing():
        raise LabError("one is up already; see `python -m tests.lab status`, or end it with `python -m tests.lab down`")
    if options.real and (reason := why_not()):
        raise LabError(reason)
    grace = options.node_grace
    lab = ControlPlane(Options(node_grace_seconds=grace) if grace else Options(), stays=True)
    try:
        lab.start()
        nodes = SimulatedNodes(lab, leases=grace is not None)
        nodes.start()
        nodes.add(options.nodes)
        if options.jobset:
            start_jobset(lab)
        if options.real:
            real.RealNodes(lab, options.real).start()
    except BaseException:
        lab.stop()
        raise
    print(f"Up: Kubernetes {RELEASE}, {options.nodes} simulated and {options.real} real nodes.\n")
    return _status(options)


def _status(options: argparse.Namespace) -> int:
    standing = _standing()
    for directory in standing:
        print(f"  export KUBECONFIG={directory / 'kubeconfig'}")
        print("  kubectl get nodes              # no kubectl here? the lab's own:")
        print(f"  alias kubectl='{' '.join(binaries().kubectl)}'\n")
        print(f"Logs lie in {directory}; running: {', '.join(running(directory / STATE))}.")
        print("End it with: python -m tests.lab down")
    if not standing:
        print("nothing is up")
    return 0


def _down(options: argparse.Namespace) -> int:
    ended = [*real.sweep(kept=True), *control_plane.sweep(kept=True)]
    print(f"ended: {', '.join(ended) or 'nothing was up'}")
    return 0


def _standing() -> list[Path]:
    """The directories of labs that were asked to stay and have something running."""
    control_plane.sweep()
    found = [each for each in control_plane.home().iterdir() if (each / STATE).exists()]
    return [each for each in found if is_abandoned(each / STATE, kept=True) and running(each / STATE)]


if __name__ == "__main__":
    sys.exit(main())
