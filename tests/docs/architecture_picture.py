"""
The picture of docs/architecture.md: how data flows from a node to a restart.

`make docs` writes `docs/architecture.svg`; `python -m tests.docs.architecture_picture` does that alone.
"""

from __future__ import annotations

from tests.docs.drawing import Arrow, Box, svg
from tests.docs.page import ROOT

FILE = ROOT / "docs" / "architecture.svg"
WIDTH, HEIGHT = 960, 824
NAME = "How data flows through healthd"
SAID = """\
The agent of each node reads the kernel log, NVML, DCGM, network ports, PCIe and the host. Diagnosis makes findings,
which a ledger keeps. From them follow the quarantine of the node within the budget, a report in NodeHealth, and
metrics. The API server holds all state. The controller's informers fill the cluster state. The reconciler observes,
decides, acts through the adapter of the gang's kind, and records in the Recovery. Checkpoints are read beside the
loop, and a garbage collector releases what is over. healthd run is the same code on one server, with SQLite and
processes."""
TOP, BOTTOM = 16, 668
"""Of the three columns."""
LEFT, MIDDLE, RIGHT = (16, 276), (356, 248), (668, 276)
"""Left border and width of each column."""
ROWS = [66.0 + 86 * row for row in range(6)]
"""Upper borders of the objects. What writes one stands beside it."""
LOW, HIGH = 42.0, 58.0
"""Boxes of two lines and of three."""


def column(place: tuple[int, int], look: str, title: str, path: str) -> Box:
    """One of the three parts of an installation on Kubernetes."""
    x, width = place
    return Box(x=x, y=TOP, width=width, height=BOTTOM - TOP, title=title, code=[path], look=f"group {look}")


def within(place: tuple[int, int], y: float, title: str, *text: str, code: str = "", indent: float = 18) -> Box:
    """A box of a column, as wide as there is room."""
    x, width = place[0] + indent, place[1] - 2 * indent
    lines = 1 + len(text) + bool(code)
    height = HIGH if lines == 3 else LOW
    return Box(x=x, y=y, width=width, height=height, title=title, text=text, code=[code] if code else [])


SOURCES = [
    Box(x=34 + left, y=64 + top, width=width, height=27, text=[name])
    for name, left, top, width in (
        ("kernel log", 0, 0, 92),
        ("NVML", 98, 0, 72),
        ("DCGM", 176, 0, 64),
        ("NICs", 0, 32, 92),
        ("PCIe", 98, 32, 72),
        ("host", 176, 32, 64),
    )
]
DIAGNOSIS = within(LEFT, 142, "Diagnosis", "records and readings become findings", code="core/diagnosis/")
LEDGER = within(LEFT, 218, "Ledger of findings", "raised, repeated, cleared", code="core/diagnosis/findings/")
SLOT = within(
    LEFT, ROWS[3] + 2, "Slot of the budget", "taken first: without one, no cordon", code="agent/budget_slots.py"
)
QUARANTINE = within(LEFT, ROWS[4] + 2, "Quarantine", "cordon and taint, in one patch", code="agent/guard.py")
REPORT = within(LEFT, ROWS[5] + 2, "Report", "verdict, findings, conditions", code="agent/publish.py")
METRICS = within(LEFT, 600, "Metrics", "for Prometheus", code="telemetry/metrics/")
AGENT = [*SOURCES, DIAGNOSIS, LEDGER, SLOT, QUARANTINE, REPORT, METRICS]

OBJECTS = [
    within(MIDDLE, y, title, *text, indent=12)
    for y, (title, *text) in zip(
        ROWS,
        (
            ("Root of a gang", "a Job, JobSet, StatefulSet or", "PodGang: stopped and started"),
            ("Pod", "made by the gang's own controller;", "gets the hint where to resume"),
            ("Recovery", "cause, phase, timeline, checkpoint,", "the hint, the outcome"),
            ("Lease", "one for each slot of the budget,", "and one for the leader"),
            ("Node", "cordon, taint, conditions;", "spares and their claims"),
            ("NodeHealth", "findings, verdict,", "place in the kernel log"),
        ),
        strict=True,
    )
]
ROOT_OBJECT, POD, RECOVERY, LEASE, NODE, NODE_HEALTH = OBJECTS

INFORMERS = within(RIGHT, 66, "Informers", "list and watch; a change wakes", code="controller/cache/informers.py")
STATE = within(RIGHT, 140, "Cluster state", "cache by gang, and dirty gangs", code="controller/cache/cluster_state.py")
LOOP = Box(
    x=686, y=214, width=240, height=302, title="Reconciler", code=["controller/reconciler.py"], look="group controller"
)
STEP = (690, 212)
OBSERVE = within(STEP, 258, "Observe", "fresh reads into a snapshot", code="controller/observer.py", indent=8)
DECIDE = within(STEP, 328, "Decide", "pure: no I/O, no clock", code="core/recovery/", indent=8)
ACT = within(STEP, 398, "Act", "through the gang's adapter", code="gangs/", indent=8)
RECORD = within(STEP, 468, "Record", "phase and reason, Events", indent=8)
CHECKPOINTS = within(RIGHT, 528, "Checkpoints", "the newest that will load", code="checkpoints/")
COLLECTOR = within(
    RIGHT, 600, "Garbage collector", "spares, hints, old recoveries", code="controller/garbage_collector.py"
)
CONTROLLER = [INFORMERS, STATE, LOOP, OBSERVE, DECIDE, ACT, RECORD, CHECKPOINTS, COLLECTOR]

SERVER = Box(
    x=16,
    y=684,
    width=928,
    height=124,
    title="healthd run: the same code on one server",
    code=["local/runtime.py"],
    look="group cluster",
)
SLOTS = within(LEFT, 734, "Agents, one for each slot", "a slot is a GPU; one kernel log", code="agent/")
SQLITE = within(MIDDLE, 734, "SQLite file", "behaves as the API server does", code="cluster/embedded/", indent=12)
LOCAL = within(RIGHT, 734, "The same controller", "a gang is a Job of local processes", code="controller/, local/")
ONE_SERVER = [SERVER, SLOTS, SQLITE, LOCAL]

BORDER = MIDDLE[0] + MIDDLE[1]
"""The right border of the API server: what the controller reads and writes are objects of every kind."""
BUS = LEFT[0] + 9
BACK = LOOP.right - 9


def down(upper: Box, lower: Box) -> Arrow:
    """From one box to the next below it, or above."""
    ends = (upper.bottom, lower.y) if upper.y < lower.y else (upper.y, lower.bottom)
    return Arrow([(lower.center, ends[0]), (lower.center, ends[1])])


def across(start: Box, end: Box, label: str = "") -> Arrow:
    """From one box to one in the next column, level with it."""
    points = [(start.right, start.middle), (end.x, start.middle)]
    return Arrow(points, label, ((start.right + end.x) / 2, start.middle - 5))


def border_to(box: Box, label: str) -> Arrow:
    """From the API server to a box of the controller."""
    return Arrow([(BORDER, box.middle), (box.x, box.middle)], label, ((BORDER + RIGHT[0]) / 2, box.middle - 5))


def to_border(box: Box, label: str) -> Arrow:
    """From a box of the controller to the API server."""
    return Arrow([(box.x, box.middle), (BORDER, box.middle)], label, ((BORDER + RIGHT[0]) / 2, box.middle - 5))


def beside(start: Box, end: Box, x: float, side: str) -> Arrow:
    """From one box to another of the same column, around those between them."""
    a, b = (getattr(start, side), start.middle), (getattr(end, side), end.middle)
    return Arrow([a, (x, a[1]), (x, b[1]), b])


ARROWS = [
    Arrow([(DIAGNOSIS.center, SOURCES[-1].bottom + 1), (DIAGNOSIS.center, DIAGNOSIS.y)]),
    down(DIAGNOSIS, LEDGER),
    down(LEDGER, SLOT),
    down(SLOT, QUARANTINE),
    beside(LEDGER, REPORT, BUS, "x"),
    beside(LEDGER, METRICS, BUS, "x"),
    across(SLOT, LEASE, "create"),
    across(QUARANTINE, NODE, "patch"),
    across(REPORT, NODE_HEALTH, "write"),
    down(ROOT_OBJECT, POD),
    down(RECOVERY, POD),
    border_to(INFORMERS, "watch"),
    down(INFORMERS, STATE),
    down(STATE, LOOP),
    border_to(OBSERVE, "read"),
    down(OBSERVE, DECIDE),
    down(DECIDE, ACT),
    down(ACT, RECORD),
    to_border(ACT, "patch"),
    to_border(RECORD, "status"),
    beside(RECORD, OBSERVE, BACK, "right"),
    Arrow([(BACK, CHECKPOINTS.y), (BACK, RECORD.middle)]),
    to_border(COLLECTOR, "release"),
    across(SLOTS, SQLITE),
    Arrow([(LOCAL.x, LOCAL.middle), (SQLITE.right, LOCAL.middle)]),
]


def boxes() -> list[Box]:
    """All of them, each after what it lies on."""
    return [
        column(LEFT, "agent", "Agent, one on each node", "healthd/agent/"),
        column(MIDDLE, "cluster", "API server", "healthd/cluster/"),
        column(RIGHT, "controller", "Controller, two replicas, one leads", "healthd/controller/"),
        *(*AGENT, *OBJECTS, *CONTROLLER, *ONE_SERVER),
    ]


def picture() -> str:
    """The whole file."""
    return svg(WIDTH, HEIGHT, NAME, SAID, boxes(), ARROWS)


if __name__ == "__main__":
    FILE.write_text(picture())
