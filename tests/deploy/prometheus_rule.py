"""The PrometheusRule of deploy/components/monitoring, from grafana/. `python -m tests.deploy.prometheus_rule`."""

from __future__ import annotations

from typing import Any

import yaml

from tests.deploy.manifests import DEPLOY, ROOT, all_of

FILE = DEPLOY / "components" / "monitoring" / "rules.yaml"
RULES = [file for folder in ("alerts", "recording") for file in sorted((ROOT / "grafana" / folder).glob("*.yaml"))]
_HEAD = "# Written by `make docs` from grafana/alerts and grafana/recording, where each rule is explained.\n"


def prometheus_rule() -> dict[str, Any]:
    """The object, with every group of every file."""
    metadata = {
        "name": "healthd",
        "namespace": "healthd-system",
        "labels": {"app.kubernetes.io/name": "healthd"},
    }
    groups = [group for file in RULES for document in all_of(file) for group in document["groups"]]
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": metadata,
        "spec": {"groups": groups},
    }


class _Dumper(yaml.SafeDumper):
    """Writes text of several lines as such."""


_Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None),
)


def as_yaml() -> str:
    """The file."""
    return _HEAD + yaml.dump(prometheus_rule(), Dumper=_Dumper, sort_keys=False, width=120)


if __name__ == "__main__":
    FILE.write_text(as_yaml())
