"""
Programs are built anew when what they are made from changes, and one that cannot build reads what would help.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.lab.build import CannotBuild, binaries
from tests.lab.kubernetes import DEFAULT, SOURCE, chosen, pins, release, versions
from tests.lab.modules import CONTROL_PLANE, KINDS, KWOK, MODULES


def test_every_program_has_its_own_key() -> None:
    every = (*MODULES, *KINDS)

    assert len({module.key() for module in every}) == len(every)


def test_another_flag_is_another_program() -> None:
    assert replace(CONTROL_PLANE, stamps=()).key() != CONTROL_PLANE.key()


@pytest.mark.parametrize("version", versions())
def test_all_modules_of_one_kubernetes_are_of_the_same_release(version: str) -> None:
    text = (SOURCE / pins(version)).read_text()
    staged = set(re.findall(r"=> k8s\.io/\S+ (\S+)", text))

    assert release(version).startswith(f"v{version}.")
    assert staged == {release(version).replace("v1.", "v0.", 1)}
    assert f"k8s.io/kubernetes {release(version)} h1:" in (SOURCE / pins(version)).with_suffix(".sum").read_text()


def test_each_kubernetes_is_a_program_of_its_own() -> None:
    keys = {replace(CONTROL_PLANE, pins=pins(version)).key() for version in versions()}

    assert len(keys) == len(versions())


def test_versions_are_in_order_of_their_numbers_and_the_default_is_among_them() -> None:
    assert versions() == sorted(versions(), key=lambda version: [int(part) for part in version.split(".")])
    assert DEFAULT in versions()


def test_the_kubernetes_of_the_lab_is_the_one_that_the_environment_names() -> None:
    assert chosen({"LAB_KUBERNETES": "1.35"}) == "1.35"
    assert chosen({"LAB_KUBERNETES": ""}) == DEFAULT
    assert chosen({}) == DEFAULT


@pytest.mark.parametrize("version", ["1.3", "v1.35", "1.35.4", "../1.35", "newest"])
def test_a_kubernetes_without_pins_is_refused_and_the_others_are_named(version: str) -> None:
    with pytest.raises(SystemExit, match=r"builds only 1\.34, 1\.35"):
        chosen({"LAB_KUBERNETES": version})


def test_what_is_pinned_has_its_checksum() -> None:
    pins = (KWOK.source / "go.mod").read_text(), (KWOK.source / "go.sum").read_text()

    assert all("sigs.k8s.io/kwok v0.8.0" in text for text in pins)


@pytest.mark.lab
@pytest.mark.usefixtures("built_control_plane")
def test_programs_of_others_are_taken_where_they_are_named(tmp_path: Path) -> None:
    for name in ("etcd", "kube-apiserver", "kubectl"):
        (tmp_path / name).touch(mode=0o755)

    taken = binaries({"KUBEBUILDER_ASSETS": str(tmp_path)})

    assert taken.etcd == (str(tmp_path / "etcd"),)
    assert taken.kube_scheduler[-1] == "kube-scheduler"


def test_a_program_that_is_missing_among_others_is_named(tmp_path: Path) -> None:
    with pytest.raises(CannotBuild, match="no program etcd in it"):
        binaries({"KUBEBUILDER_ASSETS": str(tmp_path)})
