"""The objects of healthd by name, as the two ways to install it make them."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

from tests import quick_yaml
from tests.deploy.manifests import DEPLOY
from tests.lab.api import Json
from tests.lab.build import binaries

POLICY = "helm.sh/resource-policy"
KEPT = ("ConfigMap/healthd-config-", "CustomResourceDefinition/", "Namespace/")
"""What an uninstallation leaves."""

Named = dict[tuple[str, str], Json]


def named(objects: Iterable[Json]) -> Named:
    """By kind and name, without hooks. Raises AssertionError where two have the same."""
    found = [each for each in objects if "helm.sh/hook" not in each["metadata"].get("annotations", {})]
    answer = {(each["kind"], each["metadata"]["name"]): each for each in found}
    assert len(answer) == len(found)
    return answer


def _without_empty_lines(policy: Json) -> Json:
    """kustomize writes an empty line into an expression where a line with more indentation follows; CEL sees none."""
    read: Json = json.loads(re.sub(r"(\\n)+", r"\\n", json.dumps(policy)))
    return read


def kustomized(folder: Path = DEPLOY) -> Named:
    """What `kubectl apply -k` makes of a folder, without the namespace that it gives to admission policies."""
    command = [*binaries().kubectl, "kustomize", str(folder)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    made = named(each for each in quick_yaml.load_all(text) if each)
    for key, each in made.items():
        if "AdmissionPolicy" in each["kind"]:
            each["metadata"].pop("namespace", None)
            made[key] = _without_empty_lines(each)
    return made


def without_policy(made: Named) -> Named:
    """Without the one annotation that only Helm reads, where it is right. Raises AssertionError where it is not."""
    for key, each in made.items():
        annotations = each["metadata"].get("annotations", {})
        assert annotations.pop(POLICY, None) == ("keep" if "/".join(key).startswith(KEPT) else None)
        if not annotations:
            each["metadata"].pop("annotations", None)
    return made
