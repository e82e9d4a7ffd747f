"""Which siblings are connected with each other: real processes with real sockets."""

from __future__ import annotations

from pathlib import Path

from healthd.core.hang.suspects.sibling_ranks import Siblings
from healthd.probes.hang.siblings import read_connected
from healthd.probes.hang.tasks import read_task
from tests.sibling_processes import Family, a_family


def siblings_of(family: Family) -> Siblings:
    parent, *children = (task for pid in [family.parent, *family.children] if (task := read_task(pid)) is not None)
    return Siblings(parent, tuple(children))


def test_ranks_are_connected_and_the_helper_beside_them_is_not() -> None:
    with a_family("ranks") as family:
        assert read_connected(siblings_of(family)) == frozenset(family.children[:3])


def test_loaders_that_have_inherited_both_ends_of_a_connection_are_not_connected() -> None:
    with a_family("trainer") as family:
        assert not read_connected(siblings_of(family))


def test_of_a_process_with_very_many_descriptors_they_are_not_read() -> None:
    """A program may open as many as it likes."""
    with a_family("ranks") as family:
        assert not read_connected(siblings_of(family), most=5 * 3)


def test_where_the_descriptors_of_the_parent_cannot_be_read_none_is(tmp_path: Path) -> None:
    """Each connection may be that of the parent, forked off."""
    with a_family("ranks") as family:
        siblings = siblings_of(family)
        for pid in family.children:
            (tmp_path / str(pid)).symlink_to(f"/proc/{pid}")

        assert not read_connected(siblings, proc=str(tmp_path))
        (tmp_path / str(family.parent)).symlink_to(f"/proc/{family.parent}")
        assert read_connected(siblings, proc=str(tmp_path))
