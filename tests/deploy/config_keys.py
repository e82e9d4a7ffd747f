"""The keys of the configuration, for the Helm chart to know them. `python -m tests.deploy.config_keys`."""

from __future__ import annotations

import yaml

from healthd.cli.configuration.keys import keys_of, sections_of
from healthd.core.config import Config
from tests.deploy.manifests import DEPLOY

FILE = DEPLOY / "config" / "keys.yaml"
_HEAD = (
    "# Written by `make docs` from healthd/core/config. A key that is not here stops the rendering of the Helm chart.\n"
)


def as_yaml() -> str:
    """The file: the keys of each section, and under an empty name those that are in none."""
    known = {"": [*keys_of(Config)], **{name: [*keys_of(section)] for name, section in sections_of(Config)}}
    return _HEAD + yaml.safe_dump(known, sort_keys=False, width=120, default_flow_style=None)


if __name__ == "__main__":
    FILE.write_text(as_yaml())
