"""healthd by Helm at a real API server: installed, upgraded, rolled back, removed and installed again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from healthd.cluster.crds import definitions
from tests import quick_yaml
from tests.deploy.chart import kustomized, named
from tests.deploy.conftest import await_kinds
from tests.deploy.kinds import define
from tests.deploy.manifests import DEPLOY
from tests.deploy.test_half_installed import LAST, others_go_on, theirs
from tests.lab.api import Json
from tests.lab.control_plane import ControlPlane
from tests.lab.deletions import deleted_soon
from tests.lab.fixtures import get
from tests.lab.helm import Helm
from tests.lab.modules import HELM, HELM_3, Module
from tests.lab.programs import LabError, wait_until

pytestmark = [pytest.mark.lab, pytest.mark.slow]

SYSTEM = "healthd-system"
HERE = ("--namespace", SYSTEM)
CONFIGS = f"/api/v1/namespaces/{SYSTEM}/configmaps"
DEPLOYMENT = f"/apis/apps/v1/namespaces/{SYSTEM}/deployments/healthd-controller"
NODE_HEALTHS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/nodehealths.healthd.dev"
POLICIES = (
    "validatingadmissionpolicies,validatingadmissionpolicybindings,"
    "mutatingadmissionpolicies,mutatingadmissionpolicybindings"
)
RECORDS = "/apis/healthd.dev/v1alpha1/namespaces"
PATIENCE = 60

helm_4_alone = pytest.mark.parametrize("module", [HELM], ids=["helm"], indirect=True, scope="module")
"""For what follows from the objects, and hardly from the version of Helm."""


@pytest.fixture(params=[HELM, HELM_3], ids=lambda module: module.name, scope="module")
def module(request: pytest.FixtureRequest) -> Module:
    """Both versions that people use, each with a control plane of its own."""
    got: Module = request.param
    get(got, request)
    return got


@pytest.fixture(scope="module")
def cluster(module: Module, built_control_plane: None) -> Iterator[ControlPlane]:
    """A cluster without healthd, with every gang kind."""
    del module, built_control_plane
    with ControlPlane() as running:
        running.apply(LAST)
        define(running)
        yield running


@pytest.fixture(scope="module")
def others(cluster: ControlPlane) -> str:
    """A namespace in which others have what they have."""
    namespace = cluster.new_namespace()
    for path, body in theirs(namespace):
        cluster.api.create(path, body)
    return namespace


@pytest.fixture
def helm(module: Module, cluster: ControlPlane, tmp_path: Path) -> Iterator[Helm]:
    """Helm, and nothing of healthd afterwards."""
    yield Helm(module, tmp_path / "home", cluster)
    with deleted_soon(cluster):  # kubectl would go on waiting for kinds whose definitions are gone
        cluster.kubectl("delete", "-k", str(DEPLOY), "--ignore-not-found", "--wait=false")
        wait_until("an empty cluster", lambda: is_empty(cluster), limit=PATIENCE)


def is_empty(cluster: ControlPlane) -> bool:
    """Whether nothing of healthd is there any more, nor going."""
    return "healthd" not in cluster.kubectl("get", "namespaces,customresourcedefinitions", "-o", "name")


def install(helm: Helm, cluster: ControlPlane, chart: Path = DEPLOY, **values: object) -> None:
    """As the page has it for each version."""
    if helm.is_4:
        helm.run("install", "healthd", str(chart), *HERE, "--create-namespace", values=values)
    else:
        cluster.kubectl("apply", "-f", str(DEPLOY / "namespace.yaml"))
        helm.run("install", "healthd", str(chart), *HERE, values={"namespace": {"create": False}, **values})
    await_kinds(cluster)


def upgrade(helm: Helm, *words: str, chart: Path = DEPLOY, **values: object) -> None:
    helm.run("upgrade", "healthd", str(chart), *HERE, "--reset-then-reuse-values", *words, values=values)


def records(cluster: ControlPlane, namespace: str) -> list[str]:
    """A recovery and an incident, which a person may want to read next year."""
    meta = {"name": "llama-1"}
    at = "2026-01-01T03:12:04Z"
    gang = {"kind": "job", "name": "llama", "namespace": namespace, "uid": "1"}
    cause = {"kind": "hardware", "message": "xid-79", "at": at}
    recovery = {"gang": gang, "firstAttempt": 1, "cause": cause}
    incident = {"key": "a/b", "severity": "notice", "title": "xid-79", "opened": at, "updated": at}
    made = (("Recovery", f"{namespace}/recoveries", recovery), ("Incident", f"{SYSTEM}/incidents", incident))
    for kind, path, spec in made:
        body = {"apiVersion": "healthd.dev/v1alpha1", "kind": kind, "metadata": meta, "spec": spec}
        cluster.api.create(f"{RECORDS}/{path}", body)
    return [f"{RECORDS}/{path}/llama-1" for _, path, _ in made]


def config_of(cluster: ControlPlane) -> str:
    """The configuration that the controllers of now mount."""
    volumes = cluster.api.get(DEPLOYMENT)["spec"]["template"]["spec"]["volumes"]
    (name,) = [each["configMap"]["name"] for each in volumes if each["name"] == "config"]
    text: str = cluster.api.get(f"{CONFIGS}/{name}")["data"]["healthd.yaml"]
    return text


def test_all_that_the_kustomization_has_is_installed(helm: Helm, cluster: ControlPlane, others: str) -> None:
    install(helm, cluster)

    found = cluster.kubectl("get", "-k", str(DEPLOY), "-o", "name").splitlines()
    namespace = cluster.api.get(f"/api/v1/namespaces/{SYSTEM}")["metadata"]
    assert len(found) == len(kustomized())
    assert namespace["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"
    others_go_on(cluster, others)


def test_an_uninstallation_leaves_what_was_recorded_and_a_new_installation_finds_it(
    helm: Helm, cluster: ControlPlane, others: str
) -> None:
    install(helm, cluster)
    kept = records(cluster, others)

    helm.run("uninstall", "healthd", *HERE)
    others_go_on(cluster, others)

    assert [path for path in kept if not cluster.has(path)] == []
    assert not cluster.has(DEPLOYMENT)
    assert "healthd" not in cluster.kubectl(
        "get", f"{POLICIES},clusterroles,clusterrolebindings,priorityclasses", "-o", "name"
    )
    install(helm, cluster)
    assert [path for path in kept if not cluster.has(path)] == []
    others_go_on(cluster, others)
    for path in kept:
        cluster.api.delete(path)


def older(folder: Path) -> Path:
    """The chart of a former version, which did not count lost records."""
    shutil.copytree(DEPLOY, folder)
    crds = [each for each in quick_yaml.load_all((folder / "crds.yaml").read_text()) if each]
    (kind,) = [each for each in crds if each["metadata"]["name"] == "nodehealths.healthd.dev"]
    del kind["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]["lostRecords"]
    kind["spec"]["versions"][0].pop("additionalPrinterColumns", None)
    (folder / "crds.yaml").write_text(quick_yaml.dump_all(crds))
    return folder


def schema(cluster: ControlPlane) -> Json:
    served: Json = cluster.api.get(NODE_HEALTHS)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return served


def test_an_upgrade_brings_definitions_and_configuration_and_a_rollback_takes_them_back(
    helm: Helm, cluster: ControlPlane, others: str, tmp_path: Path
) -> None:
    install(helm, cluster, older(tmp_path / "older"), config={"log": {"level": "debug"}})
    kept = records(cluster, others)
    before = config_of(cluster)

    upgrade(helm, config={"log": {"level": "error"}})
    others_go_on(cluster, others)
    (definition,) = [each for each in definitions() if each["metadata"]["name"] == "nodehealths.healthd.dev"]
    brought = schema(cluster)["properties"]["status"]["properties"]
    assert "lostRecords" in brought
    assert set(brought) == set(
        definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
    )
    assert "error" in config_of(cluster)
    assert len(cluster.api.get(f"{CONFIGS}?labelSelector=app.kubernetes.io/name=healthd")["items"]) == 2

    helm.run("rollback", "healthd", "1", *HERE)
    others_go_on(cluster, others)
    assert config_of(cluster) == before
    assert "lostRecords" not in schema(cluster)["properties"]["status"]["properties"]
    assert [path for path in kept if not cluster.has(path)] == []
    for path in kept:
        cluster.api.delete(path)


@helm_4_alone
def test_an_upgrade_that_fails_is_taken_back_and_refuses_others_nothing(
    helm: Helm, cluster: ControlPlane, others: str
) -> None:
    install(helm, cluster)
    before = cluster.api.get(DEPLOYMENT)["spec"]
    taken_back = "--rollback-on-failure" if helm.is_4 else "--atomic"

    with pytest.raises(LabError, match=r"(?s)upgrade.*failed"):  # there is no node on which a pod could become ready
        upgrade(helm, taken_back, "--timeout", "5s", image={"tag": "missing"})

    others_go_on(cluster, others)
    image = before["template"]["spec"]["containers"][0]["image"]
    found = cluster.api.get(DEPLOYMENT)["spec"]["template"]["spec"]["containers"][0]["image"]
    assert found == image


@helm_4_alone
def test_helm_takes_over_what_kubectl_installed(helm: Helm, cluster: ControlPlane, others: str) -> None:
    cluster.kubectl("apply", "-k", str(DEPLOY))
    await_kinds(cluster)
    kept = records(cluster, others)
    uid = cluster.api.get(DEPLOYMENT)["metadata"]["uid"]

    with pytest.raises(LabError, match="exists and cannot be imported"):
        helm.run("install", "healthd", str(DEPLOY), *HERE)
    forced = ("--force-conflicts",) if helm.is_4 else ()
    helm.run("install", "healthd", str(DEPLOY), *HERE, "--take-ownership", *forced)
    upgrade(helm, *forced, image={"tag": "other"})

    deployment = cluster.api.get(DEPLOYMENT)
    assert deployment["metadata"]["uid"] == uid
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == "healthd:other"
    assert [path for path in kept if not cluster.has(path)] == []
    others_go_on(cluster, others)
    for path in kept:
        cluster.api.delete(path)


@helm_4_alone
def test_a_second_release_takes_nothing_from_one_that_is_installed_and_goes_on_where_it_was_forgotten(
    helm: Helm, cluster: ControlPlane, others: str
) -> None:
    install(helm, cluster)
    uid = cluster.api.get(DEPLOYMENT)["metadata"]["uid"]
    second = ("install", "other", str(DEPLOY), "--namespace", others, "--take-ownership", "--force-conflicts")

    with pytest.raises(LabError, match=f'release "healthd" in namespace "{SYSTEM}" is installed'):
        helm.run(*second)
    upgrade(helm)  # its own release is not refused
    cluster.kubectl("-n", SYSTEM, "delete", "secret", "-l", "owner=helm,name=healthd")
    helm.run(*second)

    assert cluster.api.get(DEPLOYMENT)["metadata"]["uid"] == uid
    helm.run("uninstall", "other", "--namespace", others)
    assert not cluster.has(DEPLOYMENT)


@helm_4_alone
def test_a_component_is_added_and_taken_away_by_an_upgrade(helm: Helm, cluster: ControlPlane) -> None:
    binding = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/healthd-controller-plain-pods"
    install(helm, cluster)

    upgrade(helm, components=["plain-pods"])
    assert cluster.has(binding)
    upgrade(helm, components=[])

    assert not cluster.has(binding)
    assert set(named(quick_yaml.load_all(helm.run("get", "manifest", "healthd", *HERE)))) > {
        ("Deployment", "healthd-controller")
    }
    assert json.loads(helm.run("list", *HERE, "-o", "json"))[0]["status"] == "deployed"


@helm_4_alone
def test_an_installation_that_is_killed_refuses_others_nothing_and_can_be_made_again(
    helm: Helm, cluster: ControlPlane, others: str
) -> None:
    cluster.kubectl("apply", "-f", str(DEPLOY / "namespace.yaml"))

    command = ("install", "healthd", str(DEPLOY), *HERE, "--set", "namespace.create=false")

    running = helm.start(*command)
    wait_until("a controller, without its policies", lambda: cluster.has(DEPLOYMENT), limit=PATIENCE)
    running.kill()
    running.wait()
    others_go_on(cluster, others)

    helm.run("uninstall", "healthd", *HERE)
    others_go_on(cluster, others)
    helm.run(*command)
    others_go_on(cluster, others)
