"""The chart makes the objects of the kustomization, and what its values say of them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from healthd import __version__
from healthd.cli.configuration.reading import load
from tests import quick_yaml
from tests.deploy.chart import kustomized, named, without_policy
from tests.deploy.config_keys import FILE, as_yaml
from tests.deploy.manifests import DEPLOY, ROOT, all_of
from tests.lab.api import Json
from tests.lab.fixtures import get
from tests.lab.helm import Helm
from tests.lab.modules import HELM, HELM_3, Module
from tests.lab.programs import LabError

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.usefixtures("built_control_plane")]

COMPONENTS = sorted(path.name for path in (DEPLOY / "components").iterdir())
IMAGE = "registry.example.com:5000/team/healthd"


@pytest.fixture(params=[HELM, HELM_3], ids=lambda module: module.name)
def helm(request: pytest.FixtureRequest, tmp_path: Path) -> Helm:
    """Both versions that people use."""
    module: Module = request.param
    get(module, request)
    return Helm(module, tmp_path / "home")


@pytest.fixture
def helm_4(request: pytest.FixtureRequest, tmp_path: Path) -> Helm:
    """The newer one, for what does not differ."""
    get(HELM, request)
    return Helm(HELM, tmp_path / "home")


def overlay(folder: Path, **lines: Any) -> Path:
    """A kustomization of somebody who uses ours."""
    (folder / "deploy").symlink_to(DEPLOY)
    (folder / "own").mkdir()
    (folder / "own" / "kustomization.yaml").write_text(yaml.safe_dump({"resources": ["../deploy"], **lines}))
    return folder / "own"


def test_the_chart_has_the_version_of_healthd() -> None:
    (chart,) = all_of(DEPLOY / "Chart.yaml")

    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)


def test_the_chart_knows_every_key_of_the_configuration() -> None:
    assert FILE.read_text() == as_yaml()


def test_the_chart_makes_the_objects_of_the_kustomization(helm: Helm) -> None:
    assert without_policy(named(helm.template(DEPLOY, {}))) == kustomized()


@pytest.mark.parametrize("name", COMPONENTS)
def test_a_component_of_the_chart_is_that_of_the_kustomization(helm_4: Helm, tmp_path: Path, name: str) -> None:
    own = overlay(tmp_path, components=[f"../deploy/components/{name}"])

    assert without_policy(named(helm_4.template(DEPLOY, {"components": [name]}))) == kustomized(own)


def test_all_components_together_are_those_of_the_kustomization(helm: Helm, tmp_path: Path) -> None:
    own = overlay(tmp_path, components=[f"../deploy/components/{name}" for name in COMPONENTS])

    assert without_policy(named(helm.template(DEPLOY, {"components": COMPONENTS}))) == kustomized(own)


def test_an_image_of_the_chart_is_that_of_the_kustomization(helm: Helm, tmp_path: Path) -> None:
    images = [{"name": "healthd", "newName": IMAGE, "newTag": "7"}]
    own = overlay(tmp_path, images=images, transformers=["../deploy/verifier-image"])

    made = helm.template(DEPLOY, {"image": {"repository": IMAGE, "tag": "7"}})

    assert without_policy(named(made)) == kustomized(own)


def test_a_packed_chart_makes_the_same(helm: Helm, tmp_path: Path) -> None:
    helm.run("package", str(DEPLOY), "--destination", str(tmp_path))

    packed = helm.template(tmp_path / f"healthd-{__version__}.tgz", {})

    assert named(packed) == named(helm.template(DEPLOY, {}))


def test_the_linter_has_nothing_to_say(helm: Helm) -> None:
    said = helm.run("lint", "--strict", str(DEPLOY))

    assert "0 chart(s) failed" in said
    assert "WARNING" not in said


def made_with(helm: Helm, **values: Any) -> dict[tuple[str, str], Json]:
    return named(helm.template(DEPLOY, values))


def pod_of(made: dict[tuple[str, str], Json], kind: str, name: str) -> Json:
    pod: Json = made[kind, name]["spec"]["template"]["spec"]
    return pod


def controller_of(made: dict[tuple[str, str], Json]) -> Json:
    return pod_of(made, "Deployment", "healthd-controller")


def test_the_example_for_helm_is_that_for_kustomize(helm_4: Helm, tmp_path: Path) -> None:
    example = ROOT / "examples" / "kubernetes" / "my-cluster"
    (tmp_path / "deploy").symlink_to(DEPLOY)
    shutil.copytree(example, tmp_path / "my-cluster")
    values = quick_yaml.load((example / "values.yaml").read_text())

    ours = without_policy(made_with(helm_4, **values))
    theirs = kustomized(tmp_path / "my-cluster")
    pod, (container,) = controller_of(theirs), controller_of(theirs)["containers"]
    pod["volumes"][-1]["name"] = container["volumeMounts"][-1]["name"] = "checkpoints-0"

    assert ours == theirs


def test_alert_services_get_their_secret_and_their_way(helm_4: Helm) -> None:
    egress = [{"ports": [{"protocol": "TCP", "port": 9093}]}]

    made = made_with(helm_4, alerts={"secretName": "healthd-alerts", "egress": egress})
    pod = controller_of(made)
    way = made["NetworkPolicy", "healthd-alerts"]

    assert pod["volumes"][-1] == {"name": "alerts", "secret": {"secretName": "healthd-alerts", "defaultMode": 0o440}}
    assert pod["containers"][0]["volumeMounts"][-1] == {
        "name": "alerts",
        "mountPath": "/etc/healthd-alerts",
        "readOnly": True,
    }
    assert pod["securityContext"]["fsGroup"] == pod["securityContext"]["runAsUser"]
    assert (way["spec"]["egress"], way["metadata"]["namespace"]) == (egress, "healthd-system")


def test_a_configuration_is_laid_over_the_shipped_one(helm_4: Helm, tmp_path: Path) -> None:
    values = {"quarantine": {"cordon": False, "budget": 12}, "log": {"format": "console"}, "precheck": {"every": "1m"}}

    made = made_with(helm_4, config=values)
    (name,) = [name for kind, name in made if kind == "ConfigMap"]
    (tmp_path / "healthd.yaml").write_text(made["ConfigMap", name]["data"]["healthd.yaml"])
    config, shipped = load(tmp_path / "healthd.yaml"), load(DEPLOY / "config" / "healthd.yaml")

    assert (config.quarantine.cordon, config.quarantine.budget, config.log.format) == (False, 12, "console")
    assert (config.kernel_log, config.http, config.host_root) == (shipped.kernel_log, shipped.http, shipped.host_root)
    assert controller_of(made)["volumes"][0]["configMap"]["name"] == name


@pytest.mark.parametrize("web", [{}, {"access": "proxy", "proxy_secret_file": "/etc/healthd-alerts/proxy"}])
def test_the_page_is_opened_by_one_value(helm_4: Helm, tmp_path: Path, web: dict[str, str]) -> None:
    page = {"enabled": True, "hosts": ["healthd.example.com"], "namespace": "gateway"}

    made = made_with(helm_4, page=page, config={"web": web, "log": {"format": "console"}}, components=["page"])
    config = controller_of(made)["volumes"][0]["configMap"]["name"]
    (tmp_path / "healthd.yaml").write_text(made["ConfigMap", config]["data"]["healthd.yaml"])
    read = load(tmp_path / "healthd.yaml")
    (way,) = made["NetworkPolicy", "healthd-page"]["spec"]["ingress"]

    assert (read.web.address, read.web.access, read.web.hosts) == (
        ":9402", web.get("access", "token"), ("healthd.example.com",),
    )  # fmt: skip
    assert read.log.format == "console"
    assert way["from"] == [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "gateway"}}}]
    assert {"name": "page", "containerPort": 9402} in controller_of(made)["containers"][0]["ports"]
    assert made["Service", "healthd-page"]["spec"]["ports"][0]["targetPort"] == "page"


def test_values_of_the_pods_are_added_to_what_they_have(helm_4: Helm) -> None:
    toleration = {"key": "infra", "operator": "Exists"}
    resources = {"limits": {"memory": "4Gi"}, "requests": {"cpu": 1}}
    controller = {"replicas": 3, "nodeSelector": {"pool": "infra"}, "tolerations": [toleration], "resources": resources}

    made = made_with(
        helm_4,
        controller={**controller, "env": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}]},
        image={"pullSecrets": ["registry"], "digest": "sha256:" + "a" * 64},
        checkpoints={"supplementalGroups": [3000]},
        metrics={"namespace": "observability"},
        agent={"nodeSelector": {"nvidia.com/gpu.present": "true"}},
        namespace={"create": False},
    )
    pod = controller_of(made)
    (container,) = pod["containers"]

    assert made["Deployment", "healthd-controller"]["spec"]["replicas"] == 3
    assert pod["nodeSelector"] == {"kubernetes.io/os": "linux", "pool": "infra"}
    assert pod["tolerations"][-1] == toleration
    assert len(pod["tolerations"]) == 4
    assert container["resources"] == {"requests": {"cpu": 1, "memory": "256Mi"}, "limits": {"memory": "4Gi"}}
    assert [each["name"] for each in container["env"]] == ["POD_NAME", "POD_NAMESPACE", "HTTPS_PROXY"]
    assert pod["imagePullSecrets"] == [{"name": "registry"}]
    assert container["image"] == f"healthd@sha256:{'a' * 64}"
    assert pod["securityContext"]["supplementalGroups"] == [3000]
    assert "monitoring" not in str(made["NetworkPolicy", "healthd"])
    assert pod_of(made, "DaemonSet", "healthd-agent")["nodeSelector"]["nvidia.com/gpu.present"] == "true"
    assert not [name for kind, name in made if kind == "Namespace"]


def test_the_test_runs_as_the_controller_does_and_is_no_controller(helm_4: Helm) -> None:
    every = helm_4.template(DEPLOY, {"image": {"repository": IMAGE}})
    (test,) = [each for each in every if "helm.sh/hook" in each["metadata"].get("annotations", {})]
    pod, of_test = controller_of(named(every)), test["spec"]
    same = (
        "serviceAccountName",
        "securityContext",
        "affinity",
        "nodeSelector",
        "volumes",
        "automountServiceAccountToken",
    )

    assert {key: of_test[key] for key in same} == {key: pod[key] for key in same}
    assert {each["image"] for each in (*of_test["containers"], *of_test["initContainers"])} == {
        f"{IMAGE}:{__version__}"
    }
    assert test["metadata"]["labels"]["app.kubernetes.io/component"] == "test"


HOSTILE = [
    "'",
    '"',
    'a"b\nc: d',
    "x\n---\nkind: Secret",
    "{{ .Release.Name }}",
    '{{ fail "x" }}',
    "# no",
    "&a",
    "$x",
    "\u2028",
]


def test_a_value_never_becomes_more_than_a_text(helm: Helm) -> None:
    teams = [{"name": text, "namespaces": ["*"]} for text in HOSTILE]
    env = [{"name": f"A{i}", "value": text} for i, text in enumerate(HOSTILE)]

    made = made_with(helm, config={"alerts": {"teams": teams}}, controller={"env": env})
    (config,) = [each for (kind, _), each in made.items() if kind == "ConfigMap"]
    (container,) = controller_of(made)["containers"]

    assert quick_yaml.load(config["data"]["healthd.yaml"])["alerts"]["teams"] == teams
    assert container["env"][2:] == env
    assert len(made) == len(kustomized())


@pytest.mark.parametrize("text", [*HOSTILE, "../..", "a b"])
def test_a_name_that_is_none_is_refused_with_its_place(helm_4: Helm, text: str) -> None:
    image = {"repository": text, "tag": text, "digest": text, "pullSecrets": [text]}
    selectors = {"agent": {"nodeSelector": {text: "x"}}, "controller": {"nodeSelector": {"x": text}}}

    with pytest.raises(LabError) as caught:
        made_with(helm_4, image=image, metrics={"namespace": text}, alerts={"secretName": text}, **selectors)

    places = [f"image/{key}" for key in ("repository", "tag", "digest", "pullSecrets/0")]
    places += ["metrics/namespace", "alerts/secretName", "agent/nodeSelector", "controller/nodeSelector/x"]
    assert [place for place in places if f"at '/{place}'" not in str(caught.value)] == []


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a component that is none": ({"components": ["monitorin"]}, r'no component "monitorin"; there are .*monitoring'),
    "a component outside": ({"components": ["../verifier-image"]}, r'components: there is no component "\.\./verif'),
    "a page that asks for no login": (
        {"page": {"enabled": True}, "config": {"web": {"access": "local"}}},
        r"config\.web\.access.*set token or proxy",
    ),
    "a value that is none": ({"imgae": {}}, "imgae"),
    "a key that is none": ({"image": {"repo": "x"}}, r"image'?.*repo"),
    "a section taken away": ({"agent": None}, "missing property 'agent'"),
    "a list taken away": ({"controller": {"env": None}}, "at '/controller': missing property 'env'"),
    "a tag that is a number": ({"image": {"tag": 1.10}}, r"image/tag.*string"),
    "a socket elsewhere": ({"config": {"kernel_log": {"socket": "/x"}}}, r"config\.kernel_log\.socket.*leave it out"),
    "another namespace": ({"config": {"quarantine": {"namespace": "x"}}}, r"config\.quarantine\.namespace.*leave it"),
    "a key of a section that is none": (
        {"config": {"quarantine": {"budgte": 1}}},
        r"config\.quarantine\.budgte: there is no such key; there are budget, ",
    ),
    "a section that is none": ({"config": {"quarantin": {}}}, r"config\.quarantin: there is no such key; .*quarantine"),
    "a section that is a list": ({"config": {"alerts": []}}, r"config\.alerts: it is a section; it has the keys "),
    "a section without a name": ({"config": {"": {}}}, r"config\.: there is no such key"),
    "another root": ({"config": {"host_root": "/"}}, r"config\.host_root.*leave it out"),
    "a place without a name": ({"checkpoints": {"volumes": [{"volume": {"nfs": {}}}]}}, r"volumes\[0\]: it needs name"),
    "a place with two names": (
        {"checkpoints": {"volumes": [{"namespace": "a", "claim": "b", "mountPath": "/c", "volume": {"nfs": {}}}]}},
        r"volumes\[0\]: it needs namespace and claim",
    ),
    "a place twice": (
        {"checkpoints": {"volumes": [{"mountPath": "/c", "volume": {"nfs": {}}}] * 2}},
        r"checkpoints\.volumes\[1\]: checkpoints\.volumes\[0\] is mounted at /c already",
    ),
    "a place outside": ({"checkpoints": {"volumes": [{"mountPath": "/a/..", "volume": {"nfs": {}}}]}}, "mountPath"),
    "a claim outside": (
        {"checkpoints": {"volumes": [{"namespace": "a", "claim": "../b", "volume": {"nfs": {}}}]}},
        "claim",
    ),
    "a volume of no kind": (
        {"checkpoints": {"volumes": [{"mountPath": "/c", "volume": {"name": {}}}]}},
        "volumes/0/volume/name",
    ),
    "a volume of two kinds": (
        {"checkpoints": {"volumes": [{"mountPath": "/c", "volume": {"nfs": {}, "hostPath": {}}}]}},
        "volumes/0/volume",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_mistake_stops_the_rendering_and_is_named(helm_4: Helm, what: str) -> None:
    values, message = WRONG[what]

    with pytest.raises(LabError, match=f"(?s){message}"):
        made_with(helm_4, **values)


def test_an_older_cluster_needs_its_component(helm: Helm) -> None:
    with pytest.raises(LabError, match=r"Kubernetes v1\.33\.0 has no MutatingAdmissionPolicy .*add before-1\.36"):
        helm.template(DEPLOY, {}, "--kube-version", "1.33.0")

    made = helm.template(DEPLOY, {"components": ["before-1.36"]}, "--kube-version", "1.33.0")
    assert "MutatingAdmissionPolicy" not in {each["kind"] for each in made}


def test_a_cluster_that_is_too_old_is_refused(helm: Helm) -> None:
    with pytest.raises(LabError, match=r"1\.30\.0"):
        helm.template(DEPLOY, {"components": ["before-1.36"]}, "--kube-version", "1.29.9")


def test_values_are_those_that_the_file_shows() -> None:
    """The file of values names every value, so that a reader of it misses none."""
    (shown,) = all_of(DEPLOY / "values.yaml")
    (schema,) = all_of(DEPLOY / "values.schema.json")
    known = {name: set(each.get("properties", {})) for name, each in schema["properties"].items() if name != "global"}

    assert {name: set(value) if isinstance(value, dict) else set() for name, value in shown.items()} == known
