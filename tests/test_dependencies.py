"""`pip install .` brings all that any command imports, as its sources say. `test_clean_install.py` tries it."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from importlib.metadata import packages_distributions, requires

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.deploy.manifests import ROOT

OF_EXTRAS = {"obstore"}
"""Asked for before it is imported, and named with its extra where it is missing."""

OF_LATER_PYTHONS = {"compression"}


def imported() -> Iterator[str]:
    """The first part of the name of every module that healthd imports, wherever in a file."""
    for path in (ROOT / "healthd").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                yield from (alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and not node.level:
                yield (node.module or "").partition(".")[0]


@pytest.mark.slow
def test_what_healthd_imports_is_installed_with_it() -> None:
    wanted = [Requirement(text) for text in requires("healthd") or ()]
    brought = {
        canonicalize_name(one.name) for one in wanted if one.marker is None or one.marker.evaluate({"extra": ""})
    }
    owners = packages_distributions()
    own = {"healthd", *sys.stdlib_module_names, *OF_LATER_PYTHONS}
    foreign = set(imported()) - own - OF_EXTRAS
    missing = {name for name in foreign if not brought & {canonicalize_name(owner) for owner in owners.get(name, ())}}

    assert "aiohttp" in foreign
    assert missing == set()
