"""RBAC: every right of every account, written down once more, so that a new one is a decision."""

from __future__ import annotations

import pytest

from tests.deploy.manifests import Manifest, of_kind

READ = "get list watch"
AGENT = {
    "nodes": f"{READ} patch",
    "nodes/status": "patch",
    "nodehealths.healthd.dev": "get create",
    "nodehealths.healthd.dev/status": "patch",
    "events": "create",
    "leases.coordination.k8s.io in healthd-system": "list create delete",
}
CONTROLLER = {
    "nodes": f"{READ} patch",
    "nodehealths.healthd.dev": READ,
    "pods": f"{READ} create patch delete",
    "pods/status": "patch",
    "podgangs.healthd.dev": READ,
    "verifierimages.healthd.dev/healthd": "run",
    "jobs.batch": f"{READ} patch",
    "statefulsets.apps": f"{READ} patch",
    "jobsets.jobset.x-k8s.io": f"{READ} patch",
    "recoveries.healthd.dev": f"{READ} create patch delete",
    "recoveries.healthd.dev/status": "patch",
    "events": "create",
    "leases.coordination.k8s.io in healthd-system": "create",
    "leases.coordination.k8s.io/healthd-controller in healthd-system": f"{READ} patch",
    "incidents.healthd.dev in healthd-system": "get list create patch delete",
}
NEVER = {
    "secrets", "pods/exec", "pods/attach", "pods/portforward", "pods/ephemeralcontainers", "nodes/proxy",
    "serviceaccounts", "serviceaccounts/token", "users", "groups", "roles", "rolebindings", "clusterroles",
    "clusterrolebindings", "validatingadmissionpolicies", "validatingadmissionpolicybindings",
    "mutatingadmissionpolicies", "mutatingadmissionpolicybindings", "certificatesigningrequests", "*",
}  # fmt: skip


@pytest.mark.parametrize(("account", "rights"), [("healthd-agent", AGENT), ("healthd-controller", CONTROLLER)])
def test_an_account_has_these_rights_and_no_others(account: str, rights: dict[str, str]) -> None:
    assert _rights_of(account) == {what: set(verbs.split()) for what, verbs in rights.items()}


def test_no_account_may_read_secrets_or_impersonate() -> None:
    rules = [rule for kind in ("Role", "ClusterRole") for role in of_kind(kind).values() for rule in role["rules"]]

    assert not NEVER & {resource for rule in rules for resource in rule["resources"]}
    assert not {"*", "impersonate", "bind", "escalate", "deletecollection"} & {
        v for rule in rules for v in rule["verbs"]
    }
    assert not any("*" in rule["apiGroups"] for rule in rules)


def _rights_of(account: str) -> dict[str, set[str]]:
    rights: dict[str, set[str]] = {}
    for kind, where in (("Role", " in healthd-system"), ("ClusterRole", "")):
        for binding in of_kind(f"{kind}Binding").values():
            if account in [subject["name"] for subject in binding["subjects"]]:
                for rule in of_kind(kind)[binding["roleRef"]["name"]]["rules"]:
                    for what in _objects_of(rule):
                        rights.setdefault(f"{what}{where}", set()).update(rule["verbs"])
    return rights


def _objects_of(rule: Manifest) -> list[str]:
    found = []
    for group in rule["apiGroups"]:
        for resource in rule["resources"]:
            name, _, below = resource.partition("/")
            words = [f"{name}.{group}" if group else name, below, *rule.get("resourceNames", [])]
            found.append("/".join(word for word in words if word))
    return found
