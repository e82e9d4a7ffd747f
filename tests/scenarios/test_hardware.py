"""Hardware breaks under a gang."""

from __future__ import annotations

from healthd.core.model import CauseKind, Phase
from tests.scenarios.stage import Stage


async def test_a_broken_node_is_replaced_by_a_spare_and_training_goes_on() -> None:
    stage = Stage(ranks=2, spares=1)
    await stage.run_for(minutes=5)
    stage.fault("node-1")
    recovery = await stage.run_until(Phase.RECOVERED)

    assert stage.phases() == [
        Phase.DETECTED,
        Phase.STOPPING,
        Phase.FENCING,
        Phase.CHOOSING,
        Phase.RESERVING,
        Phase.STARTING,
        Phase.CONFIRMING,
        Phase.RECOVERED,
    ]
    assert recovery.spec.cause.kind is CauseKind.HARDWARE
    assert stage.places() == {"0": "node-0", "1": "node-2"}
    assert stage.quarantined() == ["node-1"]
    assert stage.pool() == []
