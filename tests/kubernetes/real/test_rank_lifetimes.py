"""What the ranks wrote down shows every moment in which two of them could have written the same thing."""

from __future__ import annotations

from pathlib import Path

from tests.kubernetes.real.rank_lifetimes import Life, overlaps, parse_lives, read_lives


def a_life(rank: str, attempt: int, first: float, last: float) -> Life:
    return Life(f"{rank}{attempt}{first}", rank, attempt, "n1", first, last)


def test_rank_that_ends_before_the_next_one_begins_overlaps_nothing() -> None:
    assert overlaps([a_life("0", 0, 1.0, 2.0), a_life("0", 1, 2.1, 3.0)]) == []


def test_two_ranks_of_one_attempt_live_side_by_side() -> None:
    assert overlaps([a_life("0", 0, 1.0, 2.0), a_life("1", 0, 1.0, 2.0)]) == []


def test_two_processes_of_one_rank_are_seen() -> None:
    (found,) = overlaps([a_life("0", 1, 2.0, 3.0), a_life("0", 0, 1.0, 2.0)])

    earlier = "rank 0 of attempt 0 on n1 (1.000 to 2.000)"
    assert found == f"rank 0 of attempt 1 on n1 (2.000 to 3.000) began before {earlier} had ended"


def test_two_attempts_at_the_same_time_are_seen_whatever_their_ranks() -> None:
    assert len(overlaps([a_life("0", 0, 1.0, 2.0), a_life("1", 1, 1.5, 3.0)])) == 1


def test_mixed_pulses_are_distinguished() -> None:
    lives = parse_lives("0", ["a 0 n1 1.0", "b 1 n2 1.5", "a 0 n1 2.0"])

    assert [(life.name, life.node, life.first, life.last) for life in lives] == [
        ("a", "n1", 1.0, 2.0),
        ("b", "n2", 1.5, 1.5),
    ]


def test_lives_are_read_in_the_order_of_their_beginnings(tmp_path: Path) -> None:
    (tmp_path / "0").write_text("a 0 n1 5.0\n")
    (tmp_path / "1").write_text("b 0 n2 4.0\n")

    assert [life.rank for life in read_lives(tmp_path)] == ["1", "0"]
