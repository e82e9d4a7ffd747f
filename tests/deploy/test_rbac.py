"""RBAC: every right of every account, written down once more, so that a new one is a decision."""

from __future__ import annotations

import pytest

from healthd.core.api import RESOURCES
from healthd.gangs.kinds import ALL, SHIPPED
from healthd.gangs.kinds.components import COMPONENTS
from tests.deploy.manifests import DEPLOY, Manifest, component, of_kind

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
    "hardwarehistories.healthd.dev in healthd-system": "get list create patch delete",
    "rootcopies.healthd.dev in healthd-system": "get list create patch delete",
    "namespaces/kube-system": "get",
}
FAMILIES = {
    "kubeflow-training": "pytorchjobs tfjobs xgboostjobs paddlejobs jaxjobs",
    "kubeflow-mpi": "mpijobs",
    "kubeflow-trainer": "trainjobs",
    "ray": "rayclusters rayjobs",
    "leaderworkerset": "leaderworkersets",
    "appwrapper": "appwrappers",
    "volcano": "jobs",
    "kueue": "workloads",
}
"""The component of each family of gang kinds, and what it is about."""
DELETED = {"kueue": "delete"}
"""Of what a component lets the controller delete objects, too."""
STATUSES = {"volcano": "jobs/status"}
"""Of what a component lets the controller patch the status, too."""
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


@pytest.mark.parametrize("family", FAMILIES)
def test_a_component_of_gang_kinds_lets_the_controller_read_and_patch_them_and_nothing_else(family: str) -> None:
    role, binding = (each for each in component(family) if "Role" in each["kind"])
    others = {each["kind"] for each in component(family) if "Role" not in each["kind"]}
    rule, *further = role["rules"]

    assert (role["kind"], binding["kind"]) == ("ClusterRole", "ClusterRoleBinding")
    assert role["metadata"] == binding["metadata"] == {"name": f"healthd-controller-{family}"}
    assert binding["roleRef"]["name"] == f"healthd-controller-{family}"
    assert binding["subjects"] == of_kind("ClusterRoleBinding")["healthd-controller"]["subjects"]
    verbs = {*READ.split(), "patch", *DELETED.get(family, "").split()}
    assert (" ".join(rule["resources"]), set(rule["verbs"])) == (FAMILIES[family], verbs)
    assert all("AdmissionPolicy" in kind for kind in others)
    statuses = [STATUSES[family]] if family in STATUSES else []
    assert further == [{"apiGroups": rule["apiGroups"], "resources": [each], "verbs": ["patch"]} for each in statuses]


def test_the_controller_may_patch_a_status_where_a_description_has_it_do_so() -> None:
    assert {COMPONENTS[each.name] for each in SHIPPED if each.pod_version} == set(STATUSES)


def test_each_described_kind_is_in_one_component() -> None:
    families = {*FAMILIES} - {"kueue"}
    granted = sorted(what for family in families for what in _objects_of(component(family)[0]["rules"][0]))
    resources = [RESOURCES[ALL[each.name].kind] for each in SHIPPED]

    assert granted == sorted(f"{each.plural}.{each.api_version.partition('/')[0]}" for each in resources)


def test_every_component_that_grants_anything_is_written_down_here() -> None:
    folders = [path.name for path in (DEPLOY / "components").iterdir()]
    granting = {name for name in folders if any("Role" in one["kind"] for one in component(name))}

    others = {"plain-pods", "rebuild", "page", "remediation", "node-check", "node-hands", "before-1.36"}
    assert granting == {*FAMILIES, *others}


def test_the_component_of_the_page_grants_two_questions_and_nothing_else() -> None:
    role, binding = (one for one in component("page") if "Role" in one["kind"])

    assert [(_objects_of(rule), rule["verbs"]) for rule in role["rules"]] == [
        (["tokenreviews.authentication.k8s.io"], ["create"]),
        (["subjectaccessreviews.authorization.k8s.io"], ["create"]),
    ]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert binding["subjects"] == of_kind("ClusterRoleBinding")["healthd-controller"]["subjects"]


def test_before_1_36_the_controller_may_also_patch_the_status_of_jobs() -> None:
    role, binding = component("before-1.36")[:2]

    assert role["rules"] == [{"apiGroups": ["batch"], "resources": ["jobs/status"], "verbs": ["patch"]}]
    assert binding["subjects"] == of_kind("ClusterRoleBinding")["healthd-controller"]["subjects"]


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
