"""The real mpi-operator: MPIJob of kubeflow.org/v2beta1. It has no webhooks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.lab.build import carried, program
from tests.lab.control_plane import ControlPlane
from tests.lab.modules import MPI_OPERATOR
from tests.lab.programs import Program

_UP = 60
_LEASE = "/apis/coordination.k8s.io/v1/namespaces/default/leases/mpi-operator"


@contextmanager
def mpi_operator(control_plane: ControlPlane) -> Iterator[Program]:
    """
    It runs until the block ends. Raises LabError, CannotBuild.

    It elects a leader whether it is asked to or not, and ends when it cannot renew its lease.
    """
    control_plane.apply(carried(MPI_OPERATOR) / "kubeflow.org_mpijobs.yaml")
    control_plane.wait_until_served("/apis/kubeflow.org/v2beta1/mpijobs")
    running = control_plane.run(
        "mpi-operator",
        [
            str(program(MPI_OPERATOR)),
            f"-kubeConfig={control_plane.kubeconfig}",
            "-lock-namespace=default",
            "-threadiness=4",
            "-kube-api-qps=500",
            "-kube-api-burst=1000",
            "-monitoring-port=0",
        ],
    )
    running.wait_until("the leader", lambda: control_plane.has(_LEASE), limit=_UP)
    yield running
    running.stop()
    control_plane.api.delete(_LEASE)
