"""A pipe that hides how a rank ended is seen where it can be, and nothing else is taken for one."""

from __future__ import annotations

import shlex

import pytest

from healthd.local.reports.pipes import hidden_by

FILES = {
    "./train.sh": "#!/bin/bash\nset -e\n# it is | tee\npython train.py \\\n  --lr 1 2>&1 | tee train.log\n",
    "./careful.sh": "#!/bin/bash\nset -euo pipefail\npython train.py | tee train.log\n",
    "./status.sh": "#!/usr/bin/env bash\npython train.py | tee train.log\nexit ${PIPESTATUS[0]}\n",
    "./plain.sh": "#!/bin/sh\nnvidia-smi | head -3\nexec python train.py '| tee'\n",
    "./train.py": "#!/usr/bin/env python3\nprint(1 | 2)\n",
    "no-shebang.sh": "python train.py | tee train.log\n",
}


def read(path: str) -> str:
    return FILES.get(path, "")


@pytest.mark.parametrize(
    ("command", "pipe"),
    [
        ("sh -c 'python train.py | tee log'", "| tee"),
        ("bash -lc 'cd src && python train.py 2>&1 |& /usr/bin/tee log; echo done'", "|& /usr/bin/tee"),
        ("bash -c 'python train.py | ts'", "| ts"),
        ("env A=1 nice -n 5 bash -x ./train.sh", "| tee"),
        ("./train.sh", "| tee"),
        ("bash no-shebang.sh", "| tee"),
    ],
)
def test_a_pipe_that_hides_the_exit_code_is_seen(command: str, pipe: str) -> None:
    assert hidden_by(shlex.split(command), read) == pipe


@pytest.mark.parametrize(
    "command",
    [
        "python train.py",
        "python train.py --pipe '| tee'",
        "sh -c 'python train.py || exit 3'",
        "sh -c 'nvidia-smi | head; exec python train.py'",
        "bash -o pipefail -c 'python train.py | tee log'",
        "bash -euo pipefail -c 'python train.py | tee log'",
        "bash -c 'set -o pipefail; python train.py | tee log'",
        "./careful.sh",
        "./status.sh",
        "./plain.sh",
        "./train.py",
        "bash",
        "sh -c",
        "bash no-such-file.sh",
        "sh -c 'echo \"no end | '",
    ],
)
def test_what_hides_nothing_is_let_alone(command: str) -> None:
    assert hidden_by(shlex.split(command), read) == ""
