"""The last minutes before a hang, in a terminal and as an SVG."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from xml.etree import ElementTree

import pytest

from healthd.core.hang.history import MOST_SIGNS, ActivityHistory, RankHistory
from healthd.core.report.activity_picture import ActivityPicture
from healthd.core.report.activity_svg import activity_svg
from healthd.core.report.activity_text import MOST_LINES, activity_lines
from tests.fakes import START

SIGNS = "7" * 45 + "4" + "0" * 10 + "wwww"
SVG = "{http://www.w3.org/2000/svg}"
EVIL = "\x1b]0;x\x07\u202e</text><script>alert(1)</script>&\ud800\ufffe"


def a_picture(ranks: int = 4, *, signs: str = SIGNS, nodes: Mapping[int, str] | None = None) -> ActivityPicture:
    """Rank 2 is the suspect, and the last work was 90 s after the start."""
    history = ActivityHistory(
        start=START, interval=2, ranks=tuple(RankHistory(rank, signs) for rank in range(ranks)), left_out=3
    )
    known = {rank: f"slot-{rank}" for rank in range(ranks)} if nodes is None else nodes
    return ActivityPicture(history=history, last_work=START + timedelta(seconds=90), suspects={2}, nodes=known)


class TestTerminal:
    def test_each_rank_has_a_line_and_the_suspect_is_marked_and_first(self) -> None:
        lines = list(activity_lines(a_picture(), width=100))
        ranks = [line for line in lines if line.lstrip("> ").startswith("rank")]
        assert [line.split("slot")[0].rstrip() for line in ranks] == ["> rank 2", "  rank 0", "  rank 1", "  rank 3"]
        assert ranks[0].endswith("▇" * 45 + "▄" + "·" * 10 + "~~~~")
        assert lines[-1] == "and 3 ranks more"

    def test_the_last_work_and_round_times_stand_below_their_signs(self) -> None:
        *_, rank, axis, last, _more = activity_lines(a_picture(), width=100)
        begin = rank.index("▇")
        assert axis[begin + 15 :].startswith("|00:00:30")
        assert last.index("^") == begin + 45
        assert "last work 00:01:30 UTC" in last

    @pytest.mark.parametrize("width", [20, 30, 40, 60, 80, 120, 200])
    @pytest.mark.parametrize("signs", ["7", SIGNS, "7" * MOST_SIGNS, "." * MOST_SIGNS])
    def test_it_fits_the_terminal(self, width: int, signs: str) -> None:
        lines = list(activity_lines(a_picture(signs=signs), width=width))
        assert max(map(len, lines)) <= max(width, 22)

    def test_ascii_is_ascii(self) -> None:
        assert all(line.isascii() for line in activity_lines(a_picture(), width=80, ascii_only=True))

    def test_of_many_ranks_some_are_shown_and_the_rest_counted(self) -> None:
        lines = list(activity_lines(a_picture(MOST_LINES + 5), width=100))
        assert sum("rank " in line and "▇" in line for line in lines[2:]) == MOST_LINES
        assert lines[-1] == "and 8 ranks more"

    def test_names_of_nodes_are_cut_and_escaped(self) -> None:
        lines = list(activity_lines(a_picture(nodes={0: EVIL, 1: "n" * 300}), width=100))
        assert all(line.isprintable() and len(line) <= 100 for line in lines)

    def test_a_picture_without_a_rank_is_nothing(self) -> None:
        assert list(activity_lines(a_picture(0), width=80)) == []


class TestSvg:
    def test_it_names_every_rank_and_the_moment_of_the_last_work(self) -> None:
        tree = ElementTree.fromstring(activity_svg(a_picture(), "train"))
        words = [text.text for text in tree.iter(f"{SVG}text")]
        assert {"rank 0", "rank 1", "rank 2", "rank 3", "slot-2", "last work 00:01:30 UTC"} <= set(words)
        assert "Suspects: 2." in (tree.findtext(f"{SVG}desc") or "")

    def test_the_suspect_alone_is_marked(self) -> None:
        tree = ElementTree.fromstring(activity_svg(a_picture(), "train"))
        marked = [text.text for text in tree.iter(f"{SVG}text") if text.get("class") == "bad"]
        assert marked == ["rank 2", "slot-2", "last work 00:01:30 UTC"]

    def test_text_of_users_is_text(self) -> None:
        drawn = activity_svg(a_picture(nodes={0: EVIL}), EVIL)
        tree = ElementTree.fromstring(drawn.encode())
        assert {each.tag.removeprefix(SVG) for each in tree.iter()} == {
            *("svg", "title", "desc", "style", "rect", "text", "path")
        }
        assert all(letter.isprintable() or letter == "\n" for letter in drawn)

    def test_it_loads_nothing(self) -> None:
        drawn = activity_svg(a_picture(), "train").replace("http://www.w3.org/2000/svg", "")
        assert not any(word in drawn for word in ("http", "href", "url(", "@import", "<script", " on"))

    @pytest.mark.parametrize("ahead", [timedelta(hours=-9), timedelta(hours=9)])
    def test_a_last_work_outside_the_picture_stays_at_its_border(self, ahead: timedelta) -> None:
        picture = a_picture()
        moved = ActivityPicture(history=picture.history, last_work=START + ahead, suspects=(), nodes={})
        tree = ElementTree.fromstring(activity_svg(moved, "train"))
        (line,) = (path for path in tree.iter(f"{SVG}path") if path.get("class") == "last")
        assert 0 < float((line.get("d") or "M0").removeprefix("M").split()[0]) < 960
