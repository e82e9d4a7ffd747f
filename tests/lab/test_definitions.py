"""A definition is the file that is pinned, or none."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tests.lab.build import CannotBuild
from tests.lab.definitions import Definition, definition

PINNED = b"kind: CustomResourceDefinition\n"
WIDGETS = Definition(
    module="example.com/widgets", version="v1.0.0", file="crds/w.yaml", sha256=hashlib.sha256(PINNED).hexdigest()
)


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was loaded before."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def sources(folder: Path, content: bytes) -> Path:
    """The sources of the module, with *content* in the file."""
    (folder / "crds").mkdir()
    (folder / "crds" / "w.yaml").write_bytes(content)
    return folder


def not_to_be_had(module: str, version: str) -> Path:
    raise CannotBuild(f"no {module} {version} here")


def test_it_is_loaded_once_and_kept(tmp_path: Path) -> None:
    there = sources(tmp_path, PINNED)

    assert definition(WIDGETS, lambda module, version: there).read_bytes() == PINNED
    assert definition(WIDGETS, not_to_be_had).read_bytes() == PINNED


@pytest.mark.parametrize("content", [b"kind: Other\n", b""])
def test_another_file_than_the_pinned_one_is_refused_and_not_kept(tmp_path: Path, content: bytes) -> None:
    there = sources(tmp_path, content)

    with pytest.raises(CannotBuild, match="is not the file that is pinned"):
        definition(WIDGETS, lambda module, version: there)
    assert not WIDGETS.kept.exists()


def test_where_it_cannot_be_loaded_it_is_said_which_file_to_put_where() -> None:
    with pytest.raises(CannotBuild) as why:
        definition(WIDGETS, not_to_be_had)

    assert f"put crds/w.yaml of example.com/widgets at v1.0.0 into {WIDGETS.kept}" in str(why.value)


def test_what_was_put_into_the_cache_is_checked() -> None:
    WIDGETS.kept.parent.mkdir(parents=True)
    WIDGETS.kept.write_bytes(b"kind: Other\n")

    with pytest.raises(CannotBuild, match="is not the file that is pinned"):
        definition(WIDGETS, not_to_be_had)
