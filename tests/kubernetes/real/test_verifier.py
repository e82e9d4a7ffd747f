"""A gang that saves on a claim which only its pods mount: real pods verify it there, and real ones train on."""

from __future__ import annotations

import os
from collections.abc import Mapping

import pytest

from healthd.core.checkpoint.verification import LABEL_VERIFIER
from healthd.local.demo.script import Script
from tests.kubernetes.real.installation import Installation
from tests.kubernetes.real.scenario import GANG, RANKS, RealStage
from tests.lab.api import Json

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.kmsg]

USER = 4711
"""The owner of the checkpoints; no other user may read them."""
CLAIM = "runs"
TORN = 20
SCRIPT = Script(ranks=RANKS, steps=60, every=10, pace=0.5)


class StageWithClaim(RealStage):
    """As the others, but what the ranks share is a claim, and the ranks are a user of their own."""

    def __init__(self, installation: Installation, namespace: str) -> None:
        super().__init__(installation, namespace)
        for path in (self.directory, self.checkpoints):
            os.chown(path, USER, USER)
        self.checkpoints.chmod(0o700)
        space = {"accessModes": ["ReadWriteMany"], "storageClassName": "", "volumeName": namespace}
        volume = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany"], "storageClassName": ""}
        at = {"hostPath": {"path": str(self.directory)}, "persistentVolumeReclaimPolicy": "Retain"}
        self.control_plane.api.create(
            "/api/v1/persistentvolumes",
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": namespace},
                "spec": {**volume, **at},
            },
        )
        self._apply(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": CLAIM},
                "spec": {**space, "resources": {"requests": {"storage": "1Gi"}}},
            }
        )

    def verifiers(self) -> list[Json]:
        """The pods that verify."""
        path = f"/api/v1/namespaces/{self.namespace}/pods?labelSelector={LABEL_VERIFIER}"
        found: list[Json] = self.control_plane.api.get(path)["items"]
        return found

    def _job(self, arguments: list[str], environment: Mapping[str, str]) -> Json:
        job = super()._job(arguments, environment)
        job["metadata"]["annotations"]["healthd.dev/checkpoint"] = f"pvc://{CLAIM}/checkpoints"
        return job

    def _pod(self, arguments: list[str], environment: Mapping[str, str]) -> Json:
        pod = super()._pod(arguments, environment)
        shared, program = pod["volumes"]
        claim = {"name": shared["name"], "persistentVolumeClaim": {"claimName": CLAIM}}
        mounts = [{"name": "shared", "mountPath": self._inside}, {"name": "program", "mountPath": "/program"}]
        rank = {**pod["containers"][0], "volumeMounts": mounts}
        user = {"runAsUser": USER, "runAsGroup": USER, "fsGroup": USER}
        return {**pod, "containers": [rank], "volumes": [claim, program], "securityContext": user}


@pytest.fixture
def real_stage(installation: Installation, namespace: str) -> StageWithClaim:
    """Named as the others, so that a failure is reported in the same way."""
    return StageWithClaim(installation, namespace)


def test_a_gang_resumes_from_what_was_verified_on_its_claim(real_stage: StageWithClaim) -> None:
    scenario = real_stage
    spare = scenario.installation.names[-1]
    scenario.hold_free(spare)
    scenario.train(SCRIPT, torn_at=TORN)
    scenario.until_running(0)
    bad = scenario.ranks_of(0)["1"].node
    scenario.until_saved(TORN)

    scenario.installation.break_gpu(bad)
    scenario.until_running(1)
    recovery = scenario.until_phase("Confirming", "Recovered")
    ended = scenario.until_phase("Recovered")

    status = recovery["status"]
    assert status["checkpoint"]["step"] == TORN - SCRIPT.every
    assert status["checkpoint"]["path"] == f"/shared/{scenario.namespace}/checkpoints/step-{TORN - SCRIPT.every:06}"
    assert [each["step"] for each in status["rejected"]] == [TORN]
    assert ended["status"]["confirmedStep"] > status["checkpoint"]["step"]
    assert scenario.overlaps == []
    assert scenario.verifiers() == []
    assert GANG in ended["metadata"]["name"]
