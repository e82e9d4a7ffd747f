"""One gang of real pods, and what becomes of it: the demo's trainer on real nodes with a shared directory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

from healthd.core.api import ANNOTATION_CLAIM, LABEL_SPARE
from healthd.local.demo import trainer
from healthd.local.demo.script import DemoFolders, Script
from healthd.local.demo.undisturbed import train_undisturbed
from tests import quick_yaml
from tests.kubernetes.real.installation import SYSTEM, Installation
from tests.kubernetes.real.rank_lifetimes import Life, overlaps, read_lives
from tests.lab.api import Json
from tests.lab.kubernetes import HAS_MUTATING_POLICIES
from tests.lab.programs import LabError, wait_until
from tests.lab.real import image
from tests.lab.real.node import RealNode

GANG = "llama"
RANKS = 2
LIMIT = 180.0
"""Seconds for any one thing to happen; most take a few, and the machine may be busy."""

_PROGRAM = Path(__file__).with_name("rank.py")
_SHARED = "/shared"
"""Where pods see the shared directory of the nodes."""
_HINT: list[Json] = [
    {"name": name, "valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['healthd.dev/{key}']"}}}
    for name, key in {
        "HEALTHD_RESUME_FROM": "resume-from",
        "HEALTHD_RESUME_STEP": "resume-step",
        "HEALTHD_ATTEMPT": "attempt",
    }.items()
    if not HAS_MUTATING_POLICIES
]
"""What a container asks for by itself where no policy of the cluster adds it (docs/kubernetes/install.md)."""


class RealStage:
    """A namespace with one gang, which saves below a directory of its own."""

    def __init__(self, installation: Installation, namespace: str) -> None:
        self.installation = installation
        self.control_plane = installation.control_plane
        self.namespace = namespace
        self.script = Script(ranks=RANKS)
        self.directory = installation.nodes.shared / namespace
        self.checkpoints = self.directory / "checkpoints"
        for directory in (self.directory, self.checkpoints):
            directory.mkdir()
            directory.chmod(0o777)  # the ranks are another user

    # What is done -----------------------------------------------------------------------------------------------------

    def play(self, script: Script, *, deaf: bool = False) -> None:
        """A gang that has saved once, and the last node as a spare."""
        self.hold_free(self.installation.names[-1])
        self.train(script, deaf=deaf)
        self.until_running(0)
        self.until_saved(script.every)

    def train(
        self,
        script: Script,
        *,
        deaf: bool = False,
        evaluates: bool = False,
        notes: Mapping[str, str] | None = None,
        **options: object,
    ) -> None:
        """
        Start the gang, one rank to a node, as a user does; *options* are further ones of the trainer.

        Ranks that are *deaf* do not end when they are asked to. A gang that *evaluates* does so when it is asked to
        (`rank.py`). *notes* are further annotations of the gang.
        """
        self.script = script
        words = [*script.calm_arguments, "--pace", str(script.pace), "--checkpoint", f"{self._inside}/checkpoints"]
        further = [word for key, value in options.items() for word in (f"--{key.replace('_', '-')}", str(value))]
        environment = {name: "yes" for name, is_set in {"DEAF": deaf, "EVALUATES": evaluates}.items() if is_set}
        job = self._job([*words, *further], environment)
        job["metadata"]["annotations"] |= notes or {}
        self._apply(_program(), job)

    def hold_free(self, node: str) -> None:
        """Make *node* the one spare, once no earlier gang claims any."""
        self.until("no node claimed", lambda: not any(map(self._is_claimed, self.installation.names)))
        nodes = self.installation.names
        self.control_plane.kubectl("label", "node", *nodes, f"{LABEL_SPARE}-")
        for other in filter(self._is_spare, nodes):
            self.control_plane.kubectl("taint", "node", other, f"{LABEL_SPARE}-")
        self.control_plane.kubectl("taint", "node", node, f"{LABEL_SPARE}=:NoSchedule", "--overwrite")
        self.control_plane.kubectl("label", "node", node, f"{LABEL_SPARE}=true")

    def _is_claimed(self, node: str) -> bool:
        return ANNOTATION_CLAIM in self.node(node)["metadata"].get("annotations", {})

    def _is_spare(self, node: str) -> bool:
        return any(taint["key"] == LABEL_SPARE for taint in self.node(node)["spec"].get("taints", []))

    # What is seen -----------------------------------------------------------------------------------------------------

    def until(self, what: str, holds: Callable[[], object], *, limit: float = LIMIT) -> None:
        """Return when it is seen. Raises LabError."""
        wait_until(what, holds, limit=limit)

    def until_running(self, attempt: int) -> None:
        """Return when every rank of *attempt* lives, by its own word."""
        self.until(f"{RANKS} ranks of attempt {attempt}", lambda: len(self.ranks_of(attempt)) == RANKS)

    def until_saved(self, step: int) -> None:
        """Return when the checkpoint of *step* is whole, or passes for it."""
        index = self.checkpoints / f"step-{step:06}" / trainer.INDEX
        self.until(f"step {step} saved", index.exists)

    def until_phase(self, *phases: str, limit: float = LIMIT) -> Json:
        """The latest recovery, once it is in one of *phases*."""
        self.until(
            f"a recovery that is {' or '.join(phases)}",
            lambda: any(each["status"].get("phase") in phases for each in self.recoveries()[-1:]),
            limit=limit,
        )
        return self.recoveries()[-1]

    def until_complete(self) -> None:
        """Return when the gang has done its work."""
        self.until("the job complete", lambda: "Complete" in self._job_conditions())

    def recoveries(self) -> list[Json]:
        """All of them, the first one first."""
        path = f"/apis/healthd.dev/v1alpha1/namespaces/{self.namespace}/recoveries"
        found: list[Json] = self.control_plane.api.get(path)["items"]
        return sorted(found, key=lambda each: str(each["metadata"]["creationTimestamp"]))

    def lives(self) -> list[Life]:
        """Every life of every rank so far."""
        return read_lives(self.directory / "lives")

    def ranks_of(self, attempt: int) -> dict[str, Life]:
        """The ranks of *attempt* that lived, each with its last life."""
        return {life.rank: life for life in self.lives() if life.attempt == attempt}

    def nodes_of(self, attempt: int) -> set[str]:
        """Where the ranks of *attempt* lived."""
        return {life.node for life in self.lives() if life.attempt == attempt}

    @property
    def overlaps(self) -> list[str]:
        """Where a rank lived twice, or two attempts lived at once."""
        return overlaps(self.lives())

    @property
    def weights(self) -> str:
        """What the gang has learned, as one word."""
        return trainer.digest(trainer.load(self.checkpoints / f"step-{self.script.steps:06}"))

    def undisturbed_weights(self, at: Path) -> str:
        """The same of a run without healthd and without faults."""
        place = DemoFolders(at)
        asyncio.run(train_undisturbed(self.script, place))
        return trainer.digest(trainer.load(place.calm / f"step-{self.script.steps:06}"))

    def node(self, name: str) -> Json:
        """A node as the API server has it."""
        return self.control_plane.api.get(f"/api/v1/nodes/{name}")

    def readiness(self, name: str) -> str:
        """What the condition Ready of a node says."""
        conditions = self.node(name)["status"]["conditions"]
        return next(str(each["status"]) for each in conditions if each["type"] == "Ready")

    @property
    def newest_step(self) -> int:
        """Of the checkpoints that are whole, or pass for it."""
        found = [index.parent.name for index in self.checkpoints.glob(f"*/{trainer.INDEX}")]
        return max((int(name.removeprefix("step-")) for name in found), default=0)

    def pods(self) -> list[Json]:
        """All pod objects of the gang."""
        found: list[Json] = self.control_plane.api.get(f"/api/v1/namespaces/{self.namespace}/pods")["items"]
        return found

    def pod_on(self, node: str) -> Json:
        """The pod of the gang on *node*."""
        return next(pod for pod in self.pods() if pod["spec"].get("nodeName") == node)

    def real_node(self, name: str) -> RealNode:
        """The machine behind a node."""
        return next(node for node in self.installation.nodes.nodes if node.name == name)

    def events(self) -> list[Json]:
        """What was reported in the namespace of the gang."""
        found: list[Json] = self.control_plane.api.get(f"/api/v1/namespaces/{self.namespace}/events")["items"]
        return found

    def describe(self) -> str:
        """All that helps to understand a failure."""
        shown = (
            ("recoveries",),
            ("recoveries", "-o", "yaml"),
            ("pods", "-o", "wide"),
            ("nodes", "-o", "wide"),
            ("nodehealths", "-o", "yaml"),
            ("pods", "-o", "wide", "--namespace", SYSTEM),
            ("events", "--sort-by=.lastTimestamp"),
        )
        parts = [self._try("get", *what) for what in shown]
        parts += [str(life) for life in self.lives()] + [f"overlap: {each}" for each in self.overlaps]
        kubelets = [_end_of(node.directory / "kubelet.log") for node in self.installation.nodes.nodes]
        return "\n\n".join([*parts, *map(_end_of, self._logs()), *kubelets])

    def _logs(self) -> list[Path]:
        """Of healthd and of the gang, as they lie on the disks of the nodes: a dead kubelet hands none out."""
        found = self.installation.nodes.directory.glob("*/upper/var/log/pods/*/*/*.log")
        return sorted(log for log in found if f"/{self.namespace}_" in str(log) or f"/{SYSTEM}_" in str(log))

    def _try(self, *words: str) -> str:
        space = () if "--namespace" in words else ("--namespace", self.namespace)
        try:
            return self.control_plane.kubectl(*words, *space)
        except LabError as error:
            return str(error)

    def job(self) -> Json:
        """The gang's root as the API server has it."""
        return self.control_plane.api.get(f"/apis/batch/v1/namespaces/{self.namespace}/jobs/{GANG}")

    def _job_conditions(self) -> set[str]:
        return {each["type"] for each in self.job()["status"].get("conditions", []) if each["status"] == "True"}

    # How the gang is written ------------------------------------------------------------------------------------------

    @property
    def _inside(self) -> str:
        return f"{_SHARED}/{self.namespace}"

    def _apply(self, *objects: Json) -> None:
        items = [{**each, "metadata": {"namespace": self.namespace, **each["metadata"]}} for each in objects]
        self.control_plane.apply(quick_yaml.dump_all(items))

    def _job(self, arguments: list[str], environment: Mapping[str, str]) -> Json:
        """As the user writes it, with no retry of its own."""
        notes = {"healthd.dev/restart": "enabled", "healthd.dev/checkpoint": f"file://{self._inside}/checkpoints"}
        counts = {"completions": RANKS, "parallelism": RANKS, "completionMode": "Indexed", "backoffLimit": 0}
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": GANG, "annotations": notes},
            "spec": {**counts, "template": {"spec": self._pod(arguments, environment)}},
        }

    def _pod(self, arguments: list[str], environment: Mapping[str, str]) -> Json:
        rank = {
            "name": "rank",
            "image": image.NAME,
            "imagePullPolicy": "Never",
            "command": ["python3", "-u", "/program/rank.py", self._inside, *arguments],
            "env": [
                *({"name": name, "value": value} for name, value in environment.items()),
                *_HINT,
                {"name": "WORLD_SIZE", "value": str(RANKS)},
                {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            ],
            "resources": {"limits": {"nvidia.com/gpu": "1"}},
            "volumeMounts": [{"name": "shared", "mountPath": _SHARED}, {"name": "program", "mountPath": "/program"}],
        }
        shared = {"name": "shared", "hostPath": {"path": str(self.installation.nodes.shared), "type": "Directory"}}
        program = {"name": "program", "configMap": {"name": "program"}}
        return {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 5,
            "containers": [rank],
            "volumes": [shared, program],
        }


def _end_of(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    describing = [
        line for line in lines if "kernel_log.lost" not in line
    ]  # others may flood the one log of this machine
    return "\n".join([f"the end of {log}:", *describing[-40:]])


def _program() -> Json:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "program"},
        "data": {_PROGRAM.name: _PROGRAM.read_text()},
    }
