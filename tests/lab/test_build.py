"""
Programs are built anew when what they are made from changes, and who cannot build is told what would help.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.lab.build import CONTROL_PLANE, KUBERNETES, KWOK, MODULES, CannotBuild, binaries


def test_every_program_has_its_own_key() -> None:
    assert len({module.key() for module in MODULES}) == len(MODULES)


def test_another_flag_is_another_program() -> None:
    assert replace(CONTROL_PLANE, stamps=()).key() != CONTROL_PLANE.key()


def test_the_version_that_the_programs_say_is_the_one_that_is_pinned() -> None:
    assert f"k8s.io/kubernetes {KUBERNETES}\n" in (CONTROL_PLANE.source / "go.mod").read_text()


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
