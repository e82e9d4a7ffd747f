"""The Dockerfile, as far as it can be checked without an engine."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from tests.deploy.image_lock import LOCK, image_lock
from tests.deploy.manifests import ROOT, containers

TEXT = (ROOT / "deploy" / "Dockerfile").read_text()
INSTRUCTIONS = [
    line.split(None, 1) for line in re.sub(r"\\\n\s*", "", TEXT).splitlines() if line and not line.startswith("#")
]
FINAL = INSTRUCTIONS[max(number for number, (word, _) in enumerate(INSTRUCTIONS) if word == "FROM") :]


def test_what_is_copied_exists_and_is_sent_to_the_engine() -> None:
    sources = [
        Path(source)
        for word, rest in INSTRUCTIONS
        if word == "COPY" and "--from" not in rest
        for source in rest.split()[:-1]
    ]
    sent = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]

    assert sources
    assert [source for source in sources if not (ROOT / source).exists()] == []
    assert [source for source in sources if not any(source.is_relative_to(one) for one in sent)] == []
    assert set(sent) <= set(map(str, sources))


def test_the_image_runs_as_the_user_that_the_manifests_name() -> None:
    (user,) = [rest for word, rest in FINAL if word == "USER"]

    assert user == "65532:65532"
    assert containers()["agent"]["securityContext"]["runAsUser"] == 65532


def test_its_program_is_the_one_that_the_project_installs() -> None:
    (entrypoint,) = [rest for word, rest in FINAL if word == "ENTRYPOINT"]
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]

    assert entrypoint == '["healthd"]'
    assert "healthd" in scripts
    assert {containers()[name]["command"][0] for name in ("agent", "controller")} == {"healthd"}


def test_the_opener_lies_where_the_manifest_looks_for_it() -> None:
    copied = dict(rest.split() for word, rest in FINAL if word == "COPY" and "--from" not in rest)

    assert copied["healthd/probes/klog/opener.py"] in containers()["opener"]["command"]


def test_the_build_can_pin_both_bases() -> None:
    bases = [rest.split()[0] for word, rest in INSTRUCTIONS if word == "FROM"]

    assert bases == ["${PYTHON}", "${PYTHON}"]
    assert any(word == "ARG" and rest.startswith("PYTHON=") for word, rest in INSTRUCTIONS)


def test_the_image_has_what_pods_need_in_the_versions_that_were_tested_and_no_client_of_people() -> None:
    pinned = set((ROOT / "requirements.lock").read_text().splitlines())
    packages = [line for line in LOCK.read_text().splitlines() if not line.startswith("#")]

    assert LOCK.read_text() == image_lock()
    assert set(packages) <= pinned
    assert not any(line.startswith("kubernetes==") for line in packages)
    assert any(line.startswith("obstore==") for line in packages)


def test_an_image_whose_checksums_would_be_slow_is_not_built() -> None:
    checks = [rest for word, rest in INSTRUCTIONS if word == "RUN" and "import google_crc32c" in rest]

    assert ['"-W", "error"' in check for check in checks] == [True]


def test_nothing_is_fetched_but_pinned_packages() -> None:
    runs = [rest for word, rest in INSTRUCTIONS if word == "RUN"]

    assert not any(word in run for run in runs for word in ("curl", "wget", "apt-get", "ADD"))
    assert all("requirements.lock" in run for run in runs if "install" in run)
