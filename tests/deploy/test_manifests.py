"""What the manifests promise, read from the files; no cluster is needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from healthd.agent.pod_witness import SOCKET
from healthd.cli.configuration.reading import load
from healthd.core.config import Config
from healthd.probes.host_root import HostRoot
from healthd.telemetry.address import is_loopback
from tests import quick_yaml
from tests.deploy.manifests import DEPLOY, all_of, component, containers, of_kind, pod_specs, shipped

UNPRIVILEGED = sorted(set(containers()) - {"opener"})


def test_the_configuration_is_one_that_healthd_takes() -> None:
    config = load(DEPLOY / "config" / "healthd.yaml")

    assert isinstance(config, Config)
    assert (config.http.address, config.http.probe_address) == (":9400", ":9401")


def test_the_agent_reads_the_kernel_log_where_the_opener_hands_it_out() -> None:
    config = load(DEPLOY / "config" / "healthd.yaml")
    opener, agent = containers()["opener"], containers()["agent"]
    folders = [one["mountPath"] for one in (*opener["volumeMounts"], *agent["volumeMounts"]) if one["name"] == "run"]

    assert config.kernel_log.socket in opener["command"]
    assert folders == ["/run/healthd", "/run/healthd"]
    assert config.kernel_log.socket.startswith("/run/healthd/")


def test_the_opener_serves_only_the_agents_user() -> None:
    assert containers()["opener"]["command"][-1] == str(containers()["agent"]["securityContext"]["runAsUser"])


def test_the_agent_sees_what_it_reads_of_the_host_below_host_root_and_read_only() -> None:
    config = load(DEPLOY / "config" / "healthd.yaml")
    paths = {
        one["name"]: one["hostPath"]["path"] for one in pod_specs()["healthd-agent"]["volumes"] if "hostPath" in one
    }
    mounts = [one for one in containers()["agent"]["volumeMounts"] if one["name"] in paths]

    assert {one["mountPath"]: one["readOnly"] for one in mounts} == {
        f"{config.host_root}{path}": True for path in paths.values()
    }
    assert str(HostRoot(Path(config.host_root)).cgroups) in [one["mountPath"] for one in mounts]


def test_the_budget_is_kept_where_the_agents_may_write_it() -> None:
    config = load(DEPLOY / "config" / "healthd.yaml")
    (kustomization,) = all_of(DEPLOY / "kustomization.yaml")

    assert kustomization["namespace"] == config.quarantine.namespace
    assert list(of_kind("Namespace")) == [config.quarantine.namespace]


def test_only_the_opener_is_privileged() -> None:
    privileged = [name for name, one in containers().items() if one["securityContext"].get("privileged")]

    assert privileged == ["opener"]


@pytest.mark.parametrize("name", UNPRIVILEGED)
def test_everything_else_has_no_rights_on_its_node(name: str) -> None:
    (spec,) = [spec for spec in pod_specs().values() if name in [one["name"] for one in spec["containers"]]]
    context = spec["securityContext"] | containers()[name]["securityContext"]

    assert context == {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "runAsGroup": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


@pytest.mark.parametrize("name", pod_specs())
def test_no_pod_shares_a_namespace_of_its_host(name: str) -> None:
    assert not {"hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace"} & set(pod_specs()[name])


def test_the_opener_has_no_token_and_no_host_path() -> None:
    opener = containers()["opener"]

    assert pod_specs()["healthd-agent"]["automountServiceAccountToken"] is False
    assert [mount["name"] for mount in opener["volumeMounts"]] == ["run"]
    assert opener["securityContext"]["readOnlyRootFilesystem"] is True
    assert "env" not in opener


def test_of_the_host_the_agent_alone_sees_control_groups_and_devices_read_only() -> None:
    paths = {
        volume["name"]: volume["hostPath"]["path"]
        for spec in pod_specs().values()
        for volume in spec["volumes"]
        if "hostPath" in volume
    }
    mounted = [(of, one) for of, container in containers().items() for one in container["volumeMounts"]]
    found = [(of, one["mountPath"], one["readOnly"]) for of, one in mounted if one["name"] in paths]

    assert sorted(paths.values()) == ["/sys/bus", "/sys/class", "/sys/devices", "/sys/fs/cgroup", "/sys/module"]
    assert sorted(found) == [("agent", f"/host{path}", True) for path in sorted(paths.values())]


def test_the_agent_runs_on_nodes_that_nothing_else_may_use() -> None:
    assert pod_specs()["healthd-agent"]["tolerations"] == [{"operator": "Exists"}]


def test_healthd_ends_no_other_pod_to_get_a_place() -> None:
    (priority,) = of_kind("PriorityClass").values()

    assert priority["preemptionPolicy"] == "Never"
    assert {spec["priorityClassName"] for spec in pod_specs().values()} == {priority["metadata"]["name"]}


@pytest.mark.parametrize("name", containers())
def test_every_container_says_what_it_needs_and_its_limit_of_memory(name: str) -> None:
    resources = containers()[name]["resources"]

    assert set(resources["requests"]) == {"cpu", "memory"}
    assert set(resources["limits"]) == {"memory"}


@pytest.mark.parametrize("name", UNPRIVILEGED)
def test_probes_follow_the_http_contract(name: str) -> None:
    container = containers()[name]
    paths = {key: container[key]["httpGet"]["path"] for key in ("startupProbe", "livenessProbe", "readinessProbe")}

    assert paths == {"startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/readyz"}


@pytest.mark.parametrize("name", UNPRIVILEGED)
def test_the_kubelet_asks_at_a_port_of_its_own(name: str) -> None:
    http = load(DEPLOY / "config" / "healthd.yaml").http
    container = containers()[name]
    ports = {port["name"]: f":{port['containerPort']}" for port in container["ports"]}
    asked = {container[key]["httpGet"]["port"] for key in ("startupProbe", "livenessProbe", "readinessProbe")}

    assert ports == {"http": http.address, "probes": http.probe_address}
    assert asked == {"probes"}


def test_the_live_page_is_reached_by_a_port_forward_alone() -> None:
    web = load(DEPLOY / "config" / "healthd.yaml").web

    assert is_loopback(web.address)
    assert not any("9402" in str(manifest) for manifest in of_kind("Service").values())


def test_the_component_of_the_page_opens_its_port_to_one_namespace_and_to_no_one_else() -> None:
    made = {one["kind"]: one for one in component("page")}
    (page,) = all_of(DEPLOY / "components" / "page" / "kustomization.yaml")
    (added,) = quick_yaml.load(page["patches"][0]["patch"])
    (rule,) = made["NetworkPolicy"]["spec"]["ingress"]
    pods = of_kind("Deployment")["healthd-controller"]["spec"]["template"]["metadata"]["labels"]

    assert added["value"] == {"name": "page", "containerPort": 9402}
    assert made["Service"]["spec"]["ports"] == [{"name": "page", "port": 9402, "targetPort": "page"}]
    assert rule["ports"] == [{"protocol": "TCP", "port": "page"}]
    assert [set(one) for one in rule["from"]] == [{"namespaceSelector"}]
    assert made["Service"]["spec"]["selector"].items() <= pods.items()
    assert made["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"] == made["Service"]["spec"]["selector"]


def test_the_component_for_evidence_of_hangs_has_these_rights_and_no_others() -> None:
    made = {one["kind"]: one for one in component("hang-evidence")}
    spec = made["DaemonSet"]["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    policy = made["NetworkPolicy"]["spec"]

    assert set(made) == {"DaemonSet", "NetworkPolicy"}
    assert {"hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace"} & set(spec) == {"hostPID"}
    assert spec["automountServiceAccountToken"] is False
    assert container["securityContext"] == {
        "runAsUser": 0,
        "runAsGroup": 0,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"], "add": ["SYS_PTRACE", "DAC_READ_SEARCH"]},
    }
    paths = sorted(volume["hostPath"]["path"] for volume in spec["volumes"])
    assert paths == ["/run/healthd-evidence", "/sys/fs/cgroup"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert not {"ingress", "egress"} & set(policy)
    labels = made["DaemonSet"]["spec"]["template"]["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"].items() <= labels.items()


def test_the_component_for_evidence_of_hangs_listens_where_the_agent_asks_and_serves_its_user_alone() -> None:
    (kustomization,) = all_of(DEPLOY / "components" / "hang-evidence" / "kustomization.yaml")
    (daemonset,) = [one for one in component("hang-evidence") if one["kind"] == "DaemonSet"]
    (container,) = daemonset["spec"]["template"]["spec"]["containers"]
    added = [one["value"] for patch in kustomization["patches"] for one in quick_yaml.load(patch["patch"])]
    user = containers()["agent"]["securityContext"]["runAsUser"]

    assert container["command"][-3:] == [SOCKET, str(user), "/host/sys/fs/cgroup"]
    assert added == [
        {"name": "hang-evidence", "mountPath": str(Path(SOCKET).parent), "readOnly": True},
        {"name": "hang-evidence", "hostPath": {"path": str(Path(SOCKET).parent), "type": "DirectoryOrCreate"}},
    ]


def test_the_namespace_of_the_monitoring_alone_reaches_metrics_and_no_one_the_probes() -> None:
    (policy,) = of_kind("NetworkPolicy").values()
    monitoring = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}

    assert policy["spec"]["ingress"] == [{"from": [monitoring], "ports": [{"protocol": "TCP", "port": "http"}]}]


@pytest.mark.parametrize("kind", ["Service", "PodDisruptionBudget", "NetworkPolicy"])
def test_what_selects_pods_finds_ours(kind: str) -> None:
    templates = [one["spec"]["template"] for one in (*of_kind("DaemonSet").values(), *of_kind("Deployment").values())]
    labels: list[dict[str, str]] = [template["metadata"]["labels"] for template in templates]
    for manifest in of_kind(kind).values():
        spec = manifest["spec"]
        selector = spec.get("podSelector", spec.get("selector"))
        wanted: dict[str, str] = selector.get("matchLabels", selector)

        assert any(wanted.items() <= mine.items() for mine in labels), manifest["metadata"]["name"]


def test_every_policy_is_bound() -> None:
    for kind in ("ValidatingAdmissionPolicy", "MutatingAdmissionPolicy"):
        bound = {binding["spec"]["policyName"] for binding in of_kind(f"{kind}Binding").values()}

        assert bound == set(of_kind(kind))


def test_the_policies_name_the_accounts_that_exist() -> None:
    accounts = {f"system:serviceaccount:healthd-system:{name}" for name in of_kind("ServiceAccount")}
    named = [_account_of(policy) for policy in of_kind("ValidatingAdmissionPolicy").values()]

    assert set(named) == accounts


def test_a_policy_that_guards_fails_closed_and_one_that_helps_fails_open() -> None:
    guards = {one["spec"]["failurePolicy"] for one in of_kind("ValidatingAdmissionPolicy").values()}
    helps = {one["spec"]["failurePolicy"] for one in of_kind("MutatingAdmissionPolicy").values()}

    assert (guards, helps) == ({"Fail"}, {"Ignore"})


def test_nothing_is_shipped_twice() -> None:
    identities = [(one["apiVersion"], one["kind"], one["metadata"]["name"]) for one in shipped()]

    assert sorted(identities) == sorted(set(identities))


def _account_of(policy: dict[str, Any]) -> str:
    """Its first condition says whom it binds; others say to what."""
    name: str = policy["spec"]["matchConditions"][0]["expression"].split("'")[1]
    return name
