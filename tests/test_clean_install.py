"""
healthd as `pip install .` leaves it, without the tools of its developers: every command starts, and what goes wrong is
one line for a person.

The one environment is made from the package registry that pip is configured for, within a minute.
"""

from __future__ import annotations

import os
import re
import subprocess
import venv
from pathlib import Path

import pytest

from healthd.cli.main import COMMANDS
from tests.deploy.manifests import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("clean install")]

TOO_LONG = 600
NO_REGISTRY = ("No matching distribution found", "NewConnectionError", "ConnectTimeoutError", "ReadTimeoutError")
UNREACHABLE = """\
apiVersion: v1
kind: Config
current-context: here
clusters: [{name: here, cluster: {server: "https://127.0.0.1:1"}}]
contexts: [{name: here, context: {cluster: here, user: me}}]
users: [{name: me, user: {token: none}}]
"""
"""A cluster where no server answers."""


class Installed:
    """The environment, and a home in which nothing is configured."""

    def __init__(self, root: Path) -> None:
        self._bin, self.home = root / "venv" / "bin", root / "home"
        self.home.mkdir()
        (self.home / "unreachable").write_text(UNREACHABLE)
        (self.home / "kern.log").write_text("[ 1.0] NVRM: Xid (PCI:0000:c1:00): 79, GPU has fallen off the bus.\n")
        venv.create(root / "venv", with_pip=True)

    def install(self) -> subprocess.CompletedProcess[str]:
        """`pip install .` with the versions that the tests have."""
        pins = ["--constraint", str(ROOT / "requirements.lock")]
        pip = [str(self._bin / "python"), "-m", "pip", "install", "--quiet", *pins, str(ROOT)]
        env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        return subprocess.run(pip, env=env, capture_output=True, text=True, timeout=TOO_LONG, check=False)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """`healthd …`, as somebody does who has just installed it."""
        return self._run("healthd", *arguments)

    def python(self, code: str) -> str:
        """What *code* prints there."""
        return self._run("python", "-c", code).stdout

    def _run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        kept = {name: os.environ[name] for name in ("LANG", "LC_ALL", "TMPDIR") if name in os.environ}
        env = {**kept, "HOME": str(self.home), "PATH": f"{self._bin}:/usr/bin:/bin"}
        command = [str(self._bin / program), *arguments]
        return subprocess.run(command, cwd=self.home, env=env, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """One environment for all tests of this file."""
    fresh = Installed(tmp_path_factory.mktemp("clean"))
    done = fresh.install()
    if done.returncode and any(sign in done.stderr for sign in NO_REGISTRY):
        pytest.skip("the package registry that pip is configured for does not answer, or lacks a package")
    assert done.returncode == 0, done.stderr
    return fresh


def commands_in_pages() -> set[str]:
    """What stands behind `healthd` in the code of all pages."""
    found: set[str] = set()
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        code = re.findall(r"```.*?```|`[^`\n]+`", page.read_text(), flags=re.DOTALL)
        found.update(
            name for each in code for name in re.findall(r"(?:^|[`$|] ?|&& )healthd ([a-z]+)", each, re.MULTILINE)
        )
    return found


def test_the_pages_name_no_command_that_there_is_not() -> None:
    named = commands_in_pages()

    assert {"doctor", "explain", "klog"} <= named
    assert named <= set(COMMANDS)


def test_what_runs_is_what_was_installed(installed: Installed) -> None:
    where, pytest_there = installed.python(
        "import healthd, importlib.util as u; print(healthd.__file__); print(bool(u.find_spec('pytest')))"
    ).split()

    assert Path(where).is_relative_to(installed.home.parent), "not the working tree"
    assert pytest_there == "False"


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_says_how_it_is_used(installed: Installed, command: str) -> None:
    done = installed.run(command, "--help")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"usage: healthd {command}")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("doctor job/x", "there is no such file"),
        ("doctor job/x --kubeconfig unreachable", "127.0.0.1"),
        ("explain job/x", "there is no such file"),
        ("explain -n default --kubeconfig unreachable", "127.0.0.1"),
        ("repair n", "there is no run in"),
        ("repair n --kubeconfig unreachable", "127.0.0.1"),
        ("status --node n", "there is no run in"),
        ("status --node n --kubeconfig nofile", "kubeconfig nofile: there is no such file"),
        ("agent --kubeconfig nofile", "which node?"),
        ("agent --node n --kubeconfig nofile", "kubeconfig nofile: there is no such file"),
        ("controller --kubeconfig nofile", "kubeconfig nofile: there is no such file"),
        ("klog nofile", "cannot read nofile"),
        ("rules --config nofile", "there is no such file"),
        ("config --check nofile", "nofile"),
    ],
)
def test_a_first_call_that_cannot_work_says_why_in_one_line(installed: Installed, line: str, said: str) -> None:
    done = installed.run(*line.split())

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("healthd: ")
    assert done.stderr.count("\n") == 1, done.stderr
    assert said in done.stderr


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("rules gpu-lost", 0, "the GPU is gone"),
        ("config --reference", 0, "judge.rules"),
        ("checkpoints latest .", 3, "no valid checkpoint"),
        ("klog --json kern.log", 0, '"xid":79'),
    ],
)
def test_what_needs_no_cluster_works(installed: Installed, line: str, code: int, said: str) -> None:
    done = installed.run(*line.split())

    assert done.returncode == code, done.stderr
    assert said in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_an_optional_part_that_is_missing_is_named(installed: Installed) -> None:
    done = installed.run("checkpoints", "latest", "s3://bucket/x")

    assert done.returncode == 2
    assert done.stderr.endswith("pip install 'healthd[s3]'\n")
