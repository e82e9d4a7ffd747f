"""What a person reads on the terminal of `healthd run`, who has never heard of Kubernetes or of healthd's insides."""

from __future__ import annotations

import json
import re
import signal

import pytest

from healthd.local.state.folder import database
from tests.e2e.driver import ROOT, RunFolder

pytestmark = pytest.mark.slow

JARGON = re.compile(
    r"\b(pods?|kubelet|namespaces?|annotations?|jobs?|nodes?|gangs?|members?|cordon\w*|drain\w*)\b", re.IGNORECASE
)


NAME = ("--name", "llama")


def jargon_in(text: str) -> list[str]:
    """The lines with words of another world."""
    return [line for line in text.splitlines() if JARGON.search(line.replace("--min-nodes", ""))]


def documented() -> set[str]:
    """The facts that `docs/run.md` promises to targets of `--notify`."""
    return set(re.findall(r"\| `HEALTHD_\w+` \| `(\w+)`", (ROOT / "docs" / "run.md").read_text()))


async def test_a_restart_is_one_line_and_the_end_is_summed_up(run_folder: RunFolder) -> None:
    run_folder.configure(sentences=True)
    async with run_folder.life(*NAME, "--spares", "1", "--notify", f"cat >> {run_folder.folder}/told") as life:
        await run_folder.all_wait(life, 0)
        run_folder.break_gpu(0)
        await run_folder.all_wait(life, 1)
        restart = await life.tells("(restart 1)")
        run_folder.open_gate()

        assert await life.ended() == 0, life.log
    reported = [json.loads(line) for line in (run_folder.folder / "told").read_text().splitlines()]
    kept = (run_folder.state / "logs" / "healthd.log").read_text()

    assert re.search(
        r"slot-0: .*: all ranks again from .*, back after .* \(restart 1\); slot-2 in place of slot-0", restart
    )
    assert "1 restart cost" in life.other
    assert f"checkpoints in {run_folder.checkpoints}, logs in {run_folder.state}/logs" in life.other
    assert jargon_in(life.other) == []
    assert [each["event"] for each in reported] == ["restart", "done"]
    assert {name for each in reported for name in each} <= documented()
    assert '"event": "recovery.phase"' in kept


async def test_a_hold_is_a_warning_with_the_way_out(run_folder: RunFolder) -> None:
    run_folder.configure(sentences=True)
    async with run_folder.life(*NAME) as life:
        await run_folder.all_wait(life, 0)
        run_folder.break_gpu(0)
        hold = await life.tells("the run waits")
        way_out = await life.tells("the way out")
        life.signal(signal.SIGINT)
        await life.ended()

    assert "warning: the run waits: no spare for slot-0: needs 1 more healthy slot" in hold
    assert "healthd repair" in way_out
    assert jargon_in(life.other) == []


@pytest.mark.parametrize("question", [("status",), ("explain",), ("explain", "llama")])
async def test_what_is_asked_later_is_answered_in_the_same_words(
    run_folder: RunFolder, question: tuple[str, ...]
) -> None:
    async with run_folder.life(*NAME, "--spares", "1") as life:
        await run_folder.all_wait(life, 0)
        run_folder.break_gpu(0)
        await run_folder.all_wait(life, 1)
        run_folder.open_gate()
        await life.ended()
    assert database(run_folder.state).is_file()

    answer = await run_folder.asks(*question, "--state", str(run_folder.state))

    assert "slot-0" in answer
    assert jargon_in(answer) == []
