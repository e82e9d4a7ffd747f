"""`healthd agent` as a command: what it needs, and what its process leaves out."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from healthd.cli import import_limits
from healthd.cli.main import main

pytestmark = pytest.mark.slow

PATIENCE = 60


def healthd(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command as a process, in an environment that names no cluster unless a test does."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("KUBERNETES_", "NODE_NAME"))}
    command = [sys.executable, "-m", "healthd.cli.main", *arguments]
    return subprocess.run(
        command, env=inherited | environment, capture_output=True, text=True, check=False, timeout=PATIENCE
    )


def test_it_must_know_which_node() -> None:
    done = healthd("agent")

    assert (done.returncode, "name it with --node" in done.stderr) == (2, True)


def test_outside_a_cluster_it_says_what_is_missing() -> None:
    done = healthd("agent", NODE_NAME="gpu-1")

    assert (done.returncode, "KUBERNETES_SERVICE_HOST" in done.stderr) == (2, True)


def test_a_bad_configuration_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    file = tmp_path / "healthd.yaml"
    file.write_text("quarantine: {budgte: 3}\n")
    done = healthd("agent", "--node", "gpu-1", "--config", str(file))

    assert done.returncode == 2
    assert 'did you mean "budget"?' in done.stderr


def test_its_help_names_the_way_in_and_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["agent", "--help"]) == 0
    assert "NODE_NAME" in capsys.readouterr().out


def test_its_process_leaves_out_what_it_does_not_need() -> None:
    program = (
        "import sys, healthd.cli.commands.agent as agent; agent._be_lean(in_pod=True); "
        "import healthd.cli.machine.agent_process, healthd.telemetry.http; "
        "unneeded = {'rich', 'kubernetes', 'sqlite3', 'pynvml', 'http.server', 'wsgiref.simple_server', "
        "'urllib.request', 'http.client', 'attr.validators'}; "
        "print(sorted(unneeded & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=PATIENCE)

    assert done.stdout.strip() == "[]"


def test_what_was_kept_out_can_be_had_afterwards() -> None:
    program = (
        "from healthd.cli import import_limits\n"
        "with import_limits.without('json'):\n"
        "    try:\n"
        "        import json\n"
        "    except ImportError:\n"
        "        print('kept out')\n"
        "import json\n"
        "print(json.dumps(1))\n"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", program],
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE,
        env={"PYTHONPATH": str(Path(import_limits.__file__).parents[2])},
    )

    assert done.stdout.split("\n") == ["kept out", "1", ""]


def test_an_empty_module_gives_way_to_the_real_one() -> None:
    program = (
        "from healthd.cli import import_limits\n"
        "with import_limits.empty('http.server', 'BaseHTTPRequestHandler'):\n"
        "    from http.server import BaseHTTPRequestHandler\n"
        "    print(BaseHTTPRequestHandler.__mro__)\n"
        "import http.server\n"
        "print(http.server.BaseHTTPRequestHandler.__module__)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE,
        env={"PYTHONPATH": str(Path(import_limits.__file__).parents[2])},
    )

    assert done.stdout.splitlines() == [
        "(<class 'healthd.cli.import_limits.BaseHTTPRequestHandler'>, <class 'object'>)",
        "http.server",
    ]


def test_a_module_that_is_loaded_already_is_not_emptied() -> None:
    with import_limits.empty("os"):
        import os as still_there

    assert still_there is os


def test_what_is_loaded_already_stays() -> None:
    with import_limits.without("os"):
        import os as still_there

    assert still_there is os
