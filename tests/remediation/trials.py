"""One trial for each hand and each API that it may be used through."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from healthd.core.remediation.hands.description import HandDescription
from healthd.core.remediation.hands.shipped import shipped_hands
from tests.lab.api import Json
from tests.remediation.controllers import SAYS, Said
from tests.remediation.definitions import UNPUBLISHED

NODE = "ip-10-0-123-45.ap-southeast-1.compute.internal"
"""As long as the names that a cloud gives."""
PROVIDER_ID = "metal3://metal/host-17/m3m-17"
ANNOTATIONS = {"cluster.x-k8s.io/cluster-namespace": "capi", "cluster.x-k8s.io/machine": "m-17"}
_MACHINE = {"clusterName": "c", "bootstrap": {"dataSecretName": "s"}}
_INFRASTRUCTURE = {"kind": "Metal3Machine", "name": "m3m-17"}

BEFORE: dict[tuple[str, str], Json] = {
    ("metal3.io/v1alpha1", "BareMetalHost"): {
        "metadata": {"name": "host-17", "namespace": "metal"},
        "spec": {"online": True, "consumerRef": {**_INFRASTRUCTURE, "namespace": "metal"}},
    },
    ("cluster.x-k8s.io/v1beta2", "Machine"): {
        "metadata": {"name": "m-17", "namespace": "capi"},
        "spec": {
            **_MACHINE,
            "infrastructureRef": {**_INFRASTRUCTURE, "apiGroup": "infrastructure.cluster.x-k8s.io"},
        },
        "status": {"nodeRef": {"name": NODE}},
    },
    ("cluster.x-k8s.io/v1beta1", "Machine"): {
        "metadata": {"name": "m-17", "namespace": "capi"},
        "spec": {
            **_MACHINE,
            "infrastructureRef": {**_INFRASTRUCTURE, "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1"},
        },
        "status": {"nodeRef": {"kind": "Node", "name": NODE}},
    },
}
"""What a hand patches is there before, made by its controller. By API and kind."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """*hand* where *api* serves *kind*: the kind that it writes, or one that shows that its controller is there."""

    hand: HandDescription
    api: str = ""
    kind: str = ""
    label: str = ""
    """Of the node, where no API shows it."""

    @property
    def name(self) -> str:
        """For the reader of a test, or of the table."""
        return f"{self.hand.name} {self.api or f'label {self.label}'}"

    @property
    def said(self) -> Said:
        """By its controller."""
        return SAYS.get(self.hand.name, Said())

    @property
    def is_published(self) -> bool:
        """Whether there is a definition to try it against."""
        return (self.api, self.kind) not in UNPUBLISHED


def trials() -> Iterator[Trial]:
    """All of them, in the order of the hands."""
    for hand in shipped_hands():
        if hand.kind != "Node":
            label = next((sign.split()[1] for sign in hand.found_by if sign.startswith("label ")), "")
            yield from (Trial(hand=hand, api=api, kind=hand.kind, label=label) for api in hand.api)
        for sign in hand.found_by if hand.kind == "Node" else ():
            where, what = sign.split()
            yield Trial(hand=hand, label=what) if where == "label" else Trial(hand=hand, api=where, kind=what)
