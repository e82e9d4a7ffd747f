"""`python -m tests.lab`: what its options say no to."""

from __future__ import annotations

import pytest

from tests.lab.__main__ import main


@pytest.mark.parametrize("grace", ["5", "19", "soon", "-30"])
def test_a_grace_that_would_make_nodes_of_a_busy_machine_unready_is_refused(
    grace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["up", f"--node-grace={grace}"])

    assert ended.value.code == 2
    assert "is not a number of seconds from 20 on" in capsys.readouterr().err
