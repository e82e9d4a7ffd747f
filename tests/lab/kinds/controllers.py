"""The table of controllers: which programs each needs, and how it is started."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from tests.lab import modules
from tests.lab.control_plane import ControlPlane
from tests.lab.jobset import jobset
from tests.lab.kinds.appwrapper import appwrapper
from tests.lab.kinds.kuberay import kuberay
from tests.lab.kinds.kueue import kueue
from tests.lab.kinds.leaderworkerset import leaderworkerset
from tests.lab.kinds.mpi_operator import mpi_operator
from tests.lab.kinds.trainer import trainer
from tests.lab.kinds.training_operator import training_operator
from tests.lab.kinds.volcano import volcano
from tests.lab.modules import Module
from tests.lab.programs import Program


@dataclass(frozen=True, kw_only=True)
class Controller:
    """One controller of gangs."""

    start: Callable[[ControlPlane], AbstractContextManager[Program]]
    """It runs, and its kinds can be created, until the block ends."""
    modules: tuple[Module, ...]

    @property
    def is_usual(self) -> bool:
        """Built by `make lab` and tried in `make test`; the others only in `make kinds`."""
        return all(module in modules.MODULES for module in self.modules)


CONTROLLERS = {
    "jobset": Controller(start=jobset, modules=(modules.JOBSET,)),
    "training-operator": Controller(start=training_operator, modules=(modules.TRAINING_OPERATOR,)),
    "mpi-operator": Controller(start=mpi_operator, modules=(modules.MPI_OPERATOR,)),
    "trainer": Controller(start=trainer, modules=(modules.TRAINER,)),
    "kuberay": Controller(start=kuberay, modules=(modules.KUBERAY,)),
    "leaderworkerset": Controller(start=leaderworkerset, modules=(modules.LEADERWORKERSET,)),
    "appwrapper": Controller(start=appwrapper, modules=(modules.APPWRAPPER,)),
    "volcano": Controller(start=volcano, modules=(modules.VOLCANO_CONTROLLERS, modules.VOLCANO_SCHEDULER)),
    "kueue": Controller(start=kueue, modules=(modules.KUEUE,)),
}
