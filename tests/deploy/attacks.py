"""
The attacks that are tried at a real API server, as a table for people: who × attack × outcome.

`python -m tests.deploy.attacks` writes it into docs/security.md. The tests named there hold each outcome to be true.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.deploy import test_admission_agent as agent
from tests.deploy import test_admission_controller as controller
from tests.deploy import test_admission_kinds as kinds
from tests.deploy import test_admission_pods as pods
from tests.deploy import test_admission_rebuild as rebuild
from tests.deploy import test_admission_roots as roots
from tests.deploy import test_admission_verifier as verifier
from tests.deploy import test_admission_workloads as workloads
from tests.deploy import test_attacks as others
from tests.deploy.manifests import ROOT
from tests.kubernetes.real.stolen_token import ATTEMPTS, OF_KUBELET

PAGE = ROOT / "docs" / "security.md"
BEGIN = "<!-- written by make docs: -->\n"
END = "<!-- until here -->\n"
KUBELET = "the kubelet, which asks RBAC"
VERIFIER = "healthd-controller-verifier"
_HEAD = "| who | attack | outcome |\n|---|---|---|\n"

Row = tuple[str, str, str]


def rows() -> Iterator[Row]:
    """Every attack, with who makes it and who refuses it."""
    stolen = "the controller's token"
    yield from ((stolen, what, roots.POLICY) for what in roots.BY_POLICY)
    yield from (
        (stolen, f"of each kind in docs/gangs.md that has it: {what}", kinds.POLICY) for what in kinds.BY_POLICY
    )
    yield from ((stolen, what, rebuild.refused_by(what)) for what in rebuild.ATTACKS)
    yield from ((stolen, f"of a Workload of Kueue: {what}", workloads.POLICY) for what in workloads.ATTACKS)
    yield from ((stolen, what, kinds.STATUS_POLICY) for what in kinds.OF_STATUS)
    yield from ((stolen, what, roots.POLICY) for what in kinds.OF_LAUNCHER)
    yield from ((stolen, what, pods.PODS_POLICY) for what in (*pods.OF_PODS, *kinds.OF_WORKERS))
    yield from ((stolen, what, pods.RECORDS_POLICY) for what in pods.OF_RECORDS)
    yield from ((stolen, f"a verifier with {what}", VERIFIER) for what in (*verifier.FURTHER, *verifier.OTHERWISE))
    yield from ((stolen, what, controller.policy_of(what)) for what in controller.BY_POLICY)
    yield from ((stolen, what, "RBAC") for what in controller.BY_RBAC)
    yield from (("an agent's token", what, agent.policy_of(what)) for what in agent.BY_POLICY)
    yield from (("an agent's token", what, "RBAC") for what in agent.BY_RBAC)
    yield from ((who, what, outcome) for who, table in others.ATTACKS.items() for what, (_, outcome) in table.items())
    yield from ((who, what, outcome) for who, table in ATTEMPTS.items() for what, (_, outcome) in table.items())
    yield from ((who, f"of a kubelet, on its own port: {what}", KUBELET) for who in ATTEMPTS for what in OF_KUBELET)


def table() -> str:
    """The rows as they stand on the page."""
    return _HEAD + "".join(f"| {who} | {what} | {_said(outcome)} |\n" for who, what, outcome in rows())


def with_table(page: str) -> str:
    """*page* with the table of today."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{table()}{END}{after}"


def _said(outcome: str) -> str:
    if outcome == others.ALLOWED:
        return outcome
    return f"refused: policy `{outcome}`" if outcome.startswith("healthd-") else f"refused: {outcome}"


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text()))
