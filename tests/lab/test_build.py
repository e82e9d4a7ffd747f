"""
Programs are built anew when what they are made from changes, and who cannot build is told what would help.
"""

from __future__ import annotations

from dataclasses import replace

from tests.lab.build import CONTROL_PLANE, KUBERNETES, KWOK, MODULES


def test_every_program_has_its_own_key() -> None:
    assert len({module.key() for module in MODULES}) == len(MODULES)


def test_another_flag_is_another_program() -> None:
    assert replace(CONTROL_PLANE, stamps=()).key() != CONTROL_PLANE.key()


def test_the_version_that_the_programs_say_is_the_one_that_is_pinned() -> None:
    assert f"k8s.io/kubernetes {KUBERNETES}\n" in (CONTROL_PLANE.source / "go.mod").read_text()


def test_what_is_pinned_has_its_checksum() -> None:
    pins = (KWOK.source / "go.mod").read_text(), (KWOK.source / "go.sum").read_text()

    assert all("sigs.k8s.io/kwok v0.8.0" in text for text in pins)
