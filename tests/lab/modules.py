"""What the lab's programs are made from: one Go module each, its pins, and what is kept of it beside the program."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from tests.lab.kubernetes import RELEASE, SOURCE, VERSION, pins

_VERSION = "k8s.io/component-base/version"
_PROMETHEUS_VERSION = "github.com/prometheus/common/version.Version"
_HELM_3 = "helm.sh/helm/v3"
_STAMPS = {"gitVersion": RELEASE, "gitMajor": "1", "gitMinor": RELEASE.split(".")[1]}
"""Without these the programs call themselves v0.0.0-master."""


@dataclass(frozen=True, kw_only=True)
class Module:
    """One Go module, whose programs are built together: what they share is compiled once."""

    name: str
    packages: tuple[str, ...]
    """Of its programs. A single one is named as the module, several as their packages."""
    minutes: str
    """How long a cold build takes, in words."""
    stamps: tuple[str, ...] = ()
    """Variables that the linker sets."""
    tags: tuple[str, ...] = ()
    """Build constraints, by which its authors leave parts out."""
    carries: str = ""
    """`MODULE FOLDER`: files of this module that are kept beside the program."""
    lacks: str = ""
    """`MODULE FILE`: what its sources include and its authors do not publish; a copy is built with an empty one."""
    shared: str = ""
    """The folder of a Go module with several programs: what they have in common is compiled once."""
    pins: str = "go.mod"
    """The file with its requirements; the checksums lie beside it."""

    @property
    def source(self) -> Path:
        """The folder of go.mod."""
        return SOURCE if self.name == "controlplane" else SOURCE / (self.shared or self.name)

    @property
    def programs(self) -> tuple[str, ...]:
        """The names of its programs."""
        several = tuple(package.rpartition("/")[2] for package in self.packages)
        return several if len(several) > 1 else (self.name,)

    def key(self) -> str:
        """Changes with everything that the program is made from."""
        digest = hashlib.sha256(
            " ".join((*self.packages, *self.stamps, *self.tags, self.carries, *self.lacks.split())).encode()
        )
        pinned = self.source / self.pins
        files = {"go.mod": pinned, "go.sum": pinned.with_suffix(".sum")}
        files |= {path.name: path for path in self.source.glob("*.go")}
        for name in sorted(files):
            digest.update(name.encode() + b"\0" + files[name].read_bytes())
        return digest.hexdigest()[:12]


CONTROL_PLANE = Module(
    name="controlplane",
    packages=(".",),
    minutes=f"Kubernetes {RELEASE}, five to ten minutes",
    stamps=tuple(f"-X {_VERSION}.{name}={value}" for name, value in _STAMPS.items()),
    pins=pins(VERSION),
)
KWOK = Module(name="kwok", packages=("sigs.k8s.io/kwok/cmd/kwok",), minutes="a minute or two")
JOBSET = Module(
    name="jobset",
    packages=("sigs.k8s.io/jobset",),
    minutes="a minute or two",
    carries="sigs.k8s.io/jobset config/components",
    shared="gangs",
)
TRAINING_OPERATOR = Module(
    name="training-operator",
    packages=("github.com/kubeflow/training-operator/cmd/training-operator.v1",),
    minutes="half a minute after JobSet",
    carries="github.com/kubeflow/training-operator manifests/base",
    shared="gangs",
)
MPI_OPERATOR = Module(
    name="mpi-operator",
    packages=("github.com/kubeflow/mpi-operator/cmd/mpi-operator",),
    minutes="half a minute after JobSet",
    carries="github.com/kubeflow/mpi-operator manifests/base",
    shared="gangs",
)
TRAINER = Module(
    name="trainer",
    packages=("github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager",),
    minutes="half a minute after JobSet",
    carries="github.com/kubeflow/trainer/v2 manifests/base",
    shared="gangs",
)
KUBERAY = Module(
    name="kuberay",
    packages=("github.com/ray-project/kuberay/ray-operator",),
    minutes="half a minute after JobSet",
    carries="github.com/ray-project/kuberay/ray-operator config/crd",
    shared="gangs",
)
LEADERWORKERSET = Module(
    name="leaderworkerset",
    packages=("sigs.k8s.io/lws/cmd",),
    minutes="half a minute after JobSet",
    carries="sigs.k8s.io/lws config",
    shared="gangs",
)
APPWRAPPER = Module(
    name="appwrapper",
    packages=("github.com/project-codeflare/appwrapper/cmd",),
    minutes="half a minute after JobSet",
    carries="github.com/project-codeflare/appwrapper config",
    shared="gangs",
)
VOLCANO_CONTROLLERS = Module(
    name="volcano-controllers",
    packages=("volcano.sh/volcano/cmd/controller-manager",),
    minutes="two minutes",
    carries="volcano.sh/volcano config/crd",
    shared="volcano",
)
VOLCANO_SCHEDULER = Module(
    name="volcano-scheduler",
    packages=("volcano.sh/volcano/cmd/scheduler",),
    minutes="seconds after the controllers",
    shared="volcano",
)
KUEUE = Module(
    name="kueue",
    packages=("sigs.k8s.io/kueue/cmd/kueue",),
    minutes="two minutes",
    carries="sigs.k8s.io/kueue config/components",
)
KUBECONFORM = Module(name="kubeconform", packages=("github.com/yannh/kubeconform/cmd/kubeconform",), minutes="seconds")
VERSITYGW = Module(name="versitygw", packages=("github.com/versity/versitygw/cmd/versitygw",), minutes="a minute")
PROMETHEUS = Module(
    name="prometheus",
    packages=("github.com/prometheus/prometheus/cmd/prometheus", "github.com/prometheus/prometheus/cmd/promtool"),
    minutes="three or four minutes",
    stamps=(f"-X {_PROMETHEUS_VERSION}=3.13.5",),
    tags=("remove_all_sd",),  # tests name their targets: no cloud is asked for them
)
ALERTMANAGER = Module(
    name="alertmanager",
    packages=("github.com/prometheus/alertmanager/cmd/alertmanager", "github.com/prometheus/alertmanager/cmd/amtool"),
    minutes="a minute or two",
    stamps=(f"-X {_PROMETHEUS_VERSION}=0.34.2",),
    lacks="github.com/prometheus/alertmanager ui/app/dist/index.html",
)
HELM = Module(
    name="helm",
    packages=("helm.sh/helm/v4/cmd/helm",),
    minutes="three or four minutes",
    stamps=("-X helm.sh/helm/v4/internal/version.version=v4.3.1",),
)
HELM_3 = Module(
    name="helm-3",
    packages=("helm.sh/helm/v3/cmd/helm",),
    minutes="half a minute after Helm 4",
    stamps=(
        f"-X {_HELM_3}/internal/version.version=v3.22.0",
        # The Kubernetes that `helm template` renders for; without it 1.20.
        f"-X {_HELM_3}/pkg/chartutil.k8sVersionMajor=1",
        f"-X {_HELM_3}/pkg/chartutil.k8sVersionMinor=37",
        f"-X {_HELM_3}/pkg/lint/rules.k8sVersionMajor=1",
        f"-X {_HELM_3}/pkg/lint/rules.k8sVersionMinor=37",
    ),
    shared="helm",
)
MODULES = (
    CONTROL_PLANE,
    KWOK,
    JOBSET,
    TRAINING_OPERATOR,
    MPI_OPERATOR,
    KUBECONFORM,
    VERSITYGW,
    PROMETHEUS,
    ALERTMANAGER,
    HELM,
    HELM_3,
)
"""What `make lab` builds, and `make test` needs."""
STORIES = (CONTROL_PLANE, KWOK, JOBSET, KUBECONFORM)
"""What `make kubernetes` builds for one version of Kubernetes; only the first is another for each."""
KINDS = (TRAINER, KUBERAY, LEADERWORKERSET, APPWRAPPER, VOLCANO_CONTROLLERS, VOLCANO_SCHEDULER, KUEUE)
"""Controllers of further gang kinds, which `make kinds` builds on top."""
