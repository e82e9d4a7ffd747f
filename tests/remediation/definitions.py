"""Where the kinds come from that the shipped hands write, or are found by."""

from __future__ import annotations

from pathlib import PurePosixPath

from tests.lab.definitions import Definition

_JANITOR = "janitor.dgxc.nvidia.com/v1alpha1"
_OF_JANITOR = "distros/kubernetes/nvsentinel/charts/janitor/crds/janitor.dgxc.nvidia.com_"
_CLUSTER_API = ("sigs.k8s.io/cluster-api", "v1.14.2")
_MACHINES = Definition(
    module=_CLUSTER_API[0],
    version=_CLUSTER_API[1],
    file="core/config/crd/bases/cluster.x-k8s.io_machines.yaml",
    sha256="0bd43e08ed8fa25424960d13275dd718fcb3477b407e11f7f0cfa25ad38d9476",
)
_HEALTH_CHECKS = Definition(
    module=_CLUSTER_API[0],
    version=_CLUSTER_API[1],
    file="core/config/crd/bases/cluster.x-k8s.io_machinehealthchecks.yaml",
    sha256="ed6db855b4b04e8a84ad9449023a52c64527945f4d43bff97cb8e555572e3b34",
)

DEFINITIONS = {
    (_JANITOR, "GPUReset"): Definition(
        # A fork with the status of the newest controller. The file of the main repository was not to be had.
        module="github.com/XRFXLP/NVSentinel",
        version="3c637ad4ba0a1a902a7a574a1133fbacfa979cbf",
        file=f"{_OF_JANITOR}gpuresets.yaml",
        sha256="6f2c673d3217bfd401261c7d162f9c4176dd018400564c36a0ab25d2a79ac5c4",
    ),
    (_JANITOR, "RebootNode"): Definition(
        module="github.com/NVIDIA/NVSentinel",
        version="59e95bf93d1c35676f4c066b252c7a54b8d5a5c6",
        file=f"{_OF_JANITOR}rebootnodes.yaml",
        sha256="8cbc2657a4e1ecf063901ec56003f335a4c4455965a6ec4e11cbdf7a4246b72b",
    ),
    (_JANITOR, "TerminateNode"): Definition(
        module="github.com/NVIDIA/NVSentinel",
        version="b3b0ce8b6fe06e15cbf7fe567886761df8c73dcf",
        file=f"{_OF_JANITOR}terminatenodes.yaml",
        sha256="4bf656b6a8a67d368d8a3d52b1175fb373991ad22164f6a905e45d0f932227cf",
    ),
    ("self-node-remediation.medik8s.io/v1alpha1", "SelfNodeRemediation"): Definition(
        module="github.com/medik8s/self-node-remediation",
        version="v0.13.0",
        file="config/crd/bases/self-node-remediation.medik8s.io_selfnoderemediations.yaml",
        sha256="c7516527baf0a0f0b3093fda65d94e2ce7ddb9b76a4787eff4fee4be60f9d9e6",
    ),
    ("remediation.medik8s.io/v1alpha1", "NodeHealthCheck"): Definition(
        module="github.com/medik8s/node-healthcheck-operator",
        version="v0.12.0",
        file="config/crd/bases/remediation.medik8s.io_nodehealthchecks.yaml",
        sha256="cbdfc3d79d620661ab47da5fc4bb43db1c6b7c6d6a8d0f1625b1dee0eb6f9e6d",
    ),
    ("metal3.io/v1alpha1", "BareMetalHost"): Definition(
        module="github.com/metal3-io/baremetal-operator",
        version="v0.13.2",
        file="config/base/crds/bases/metal3.io_baremetalhosts.yaml",
        sha256="0792dcfefd7b8b2f8308ad71957ebb9733924964f2301348ed762fd1a32c22ac",
    ),
    ("cluster.x-k8s.io/v1beta2", "Machine"): _MACHINES,
    ("cluster.x-k8s.io/v1beta1", "Machine"): _MACHINES,
    ("cluster.x-k8s.io/v1beta2", "MachineHealthCheck"): _HEALTH_CHECKS,
    ("cluster.x-k8s.io/v1beta1", "MachineHealthCheck"): _HEALTH_CHECKS,
    ("karpenter.sh/v1", "NodePool"): Definition(
        module="sigs.k8s.io/karpenter",
        version="v1.14.1",
        file="pkg/apis/crds/karpenter.sh_nodepools.yaml",
        sha256="62990043212a239704c0195bbd37abd0fddad90a586f5b37dfb403a0a0aefe1e",
    ),
}
"""By API version and kind."""
BUILT_IN = {("batch/v1", "Job"), ("v1", "Pod")}
"""Kinds of Kubernetes itself."""
UNPUBLISHED = {("maintenance.nvidia.com/v1alpha1", kind) for kind in ("GPUReset", "RebootNode", "TerminateNode")}
"""NVSentinel's design names this group for these kinds; no definition of them in it was found."""


def origin(api: str, kind: str) -> str:
    """Where the kind comes from, and in which version, for a reader."""
    if (api, kind) in BUILT_IN:
        return "Kubernetes"
    found = DEFINITIONS[api, kind]
    version = found.version if found.version.startswith("v") else found.version[:12]
    return f"`{PurePosixPath(found.module).name}` {version}"
