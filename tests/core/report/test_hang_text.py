"""What people read of a gang that hangs."""

from __future__ import annotations

from healthd.core.hang.suspects.evidence import Collective, Frame, GroupProgress, RankEvidence, Stack, TaskState
from healthd.core.hang.suspects.vote import HangLocation, vote
from healthd.core.report.hang_text import MOST_LINES, hang_lines
from tests.core.hang.gangs import LOADING, Shape, evidence, stopped_gang

SHAPE = Shape(ranks=16)


def text_of(ranks: list[RankEvidence], width: int | None = None) -> list[str]:
    return list(hang_lines(vote(ranks), ranks, width=width))


def waits(number: int) -> tuple[GroupProgress, ...]:
    return (GroupProgress("world", number, waits=True, recent=(Collective(number, "all_reduce"),)),)


class TestSuspects:
    def test_the_rank_its_place_and_the_words_of_each_witness_come_first(self) -> None:
        ranks = [evidence(SHAPE, rank, groups=waits(41)) for rank in range(16) if rank != 9]
        ranks.append(evidence(SHAPE, 9, groups=(GroupProgress("world", 40, waits=False),), stack=LOADING))
        lines = text_of(ranks)
        assert lines[0] == "rank 9 (pod train-1, node node-1, GPU-9) holds up the others (90% sure)"
        assert lines[1] == "  flight recorder: entered 40 collectives of world; 15 ranks are in number 41"

    def test_a_gang_without_a_suspect_has_the_reason_and_the_table(self) -> None:
        lines = text_of([evidence(SHAPE, rank, groups=waits(41)) for rank in range(16)])
        assert lines[0] == "no rank is named: no rank is behind another, none is stopped, and all do the same"
        assert lines[2].split() == ["RANKS", "NODES", "SUSPECT", "DOING"]
        assert lines[3].split(maxsplit=4) == ["0-15", "2", "nodes", "-", "waits in all_reduce 41 of world"]

    def test_nothing_known_is_one_line(self) -> None:
        assert list(hang_lines(HangLocation(0, reason="nothing is known of any rank"), [])) == [
            "no rank is named: nothing is known of any rank"
        ]


class TestTable:
    def test_ranks_that_do_the_same_share_a_line_and_the_suspect_is_the_first(self) -> None:
        states = [TaskState.SLEEPING] * 8
        states[3] = TaskState.STOPPED
        lines = text_of([evidence(SHAPE, rank, state=state) for rank, state in enumerate(states)])
        assert [line.split()[0] for line in lines[-2:]] == ["3", "0-2,4-7"]
        assert lines[-2].endswith("90%       is stopped")

    def test_a_gang_of_thousands_fits_on_a_screen(self) -> None:
        ranks = stopped_gang(Shape(ranks=2048), [77], seed=3)
        lines = text_of(ranks, width=100)
        assert len(lines) <= MOST_LINES + 10
        assert all(len(line) <= 100 for line in lines[3:])

    def test_escapes_of_users_are_not_printed(self) -> None:
        frame = Frame("\x1b[2Jevil", "\u202etxt.py", 1)
        ranks = [RankEvidence(0, "pod\n", "node\x07", ("gpu\x1b",), stack=Stack((frame,)), log=("\x1b]0;x",))]
        ranks.append(RankEvidence(1, log=("\x1b]0;x",)))
        assert all(line.isprintable() for line in text_of(ranks))
