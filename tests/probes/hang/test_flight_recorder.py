"""Reading dumps of the flight recorder, those of real runs and those that were made to do harm."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from healthd.core.hang.suspects.evidence import MOST_GROUPS, MOST_RECENT, Collective
from healthd.probes.errors import CannotRead
from healthd.probes.hang.flight_recorder import LARGEST_DUMP, read_flight_recorder
from tests.probes.hang.dumps import a_dump, an_entry, pickled


def written(folder: Path, data: bytes) -> str:
    path = folder / "dump_0"
    path.write_bytes(data)
    return str(path)


class TestProgress:
    def test_the_last_collective_that_was_entered_and_whether_it_has_ended(self, tmp_path: Path) -> None:
        dump = a_dump(an_entry(1), an_entry(2, "gloo:barrier", pending=True))
        (progress,) = read_flight_recorder(written(tmp_path, pickled(dump)))
        assert (progress.group, progress.number, progress.waits) == ("default_pg 0 (ranks 0…3, 4)", 2, True)
        assert progress.recent == (Collective(1, "all_reduce"), Collective(2, "barrier"))

    def test_a_rank_that_left_all_its_collectives_does_not_wait(self, tmp_path: Path) -> None:
        done = an_entry(2, retired=False, state="completed")
        (progress,) = read_flight_recorder(written(tmp_path, pickled(a_dump(an_entry(1), done))))
        assert progress.waits is False

    def test_a_group_that_the_rank_never_used_counts_as_none_entered(self, tmp_path: Path) -> None:
        config = {"3": {"name": "3", "desc": "tp", "ranks": "[0, 1]"}}
        (_, unused) = read_flight_recorder(written(tmp_path, pickled(a_dump(an_entry(1), pg_config=config))))
        assert (unused.group, unused.number, unused.waits) == ("tp 3 (ranks 0…1, 2)", 0, False)

    def test_entries_that_the_ring_has_dropped_count_by_the_status(self, tmp_path: Path) -> None:
        status = {"0": {"last_enqueued_collective": 900}}
        (progress,) = read_flight_recorder(written(tmp_path, pickled(a_dump(an_entry(7), pg_status=status))))
        assert progress.number == 900

    def test_point_to_point_operations_are_left_out(self, tmp_path: Path) -> None:
        dump = a_dump(an_entry(1), an_entry(9, is_p2p=True), pg_status={})
        (progress,) = read_flight_recorder(written(tmp_path, pickled(dump)))
        assert progress.number == 1

    def test_what_is_kept_is_bounded(self, tmp_path: Path) -> None:
        entries = [
            an_entry(number, "x" * 200, process_group=(f"{group}", "\x1b[31m" * 100))
            for group in range(3 * MOST_GROUPS)
            for number in range(1, 20)
        ]
        progress = read_flight_recorder(written(tmp_path, pickled(a_dump(*entries, pg_config={}))))
        assert len(progress) == MOST_GROUPS
        assert all(len(each.recent) == MOST_RECENT and len(each.recent[0].name) <= 64 for each in progress)
        assert all(each.group.isprintable() for each in progress)


class _Harm:
    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self._mark),)


class TestHostileDumps:
    def test_a_call_in_a_dump_is_refused_and_not_made(self, tmp_path: Path) -> None:
        mark = tmp_path / "mark"
        path = written(tmp_path, pickled(a_dump(an_entry(1, process_group=_Harm(mark)))))
        with pytest.raises(CannotRead, match="not let through"):
            read_flight_recorder(path)
        assert not mark.exists()

    def test_a_dump_of_five_gigabytes_is_refused_unread(self, tmp_path: Path) -> None:
        path = written(tmp_path, pickled(a_dump()))
        os.truncate(path, 5 << 30)
        with pytest.raises(CannotRead, match=f"at most {LARGEST_DUMP:,} are read"):
            read_flight_recorder(path)

    @pytest.mark.parametrize("data", [b"", b"\x80\x02", b"hello", b"\x80\x02]" + b"(" * 100_000, b"\x80\x02N."])
    def test_what_is_no_dump_is_refused(self, data: bytes, tmp_path: Path) -> None:
        with pytest.raises(CannotRead):
            read_flight_recorder(written(tmp_path, data))

    def test_a_dump_that_was_cut_off_is_refused_at_every_length(self, tmp_path: Path) -> None:
        whole = pickled(a_dump(an_entry(1)))
        for size in range(0, len(whole), 7):
            with pytest.raises(CannotRead):
                read_flight_recorder(written(tmp_path, whole[:size]))

    @pytest.mark.parametrize(
        "field", ["process_group", "collective_seq_id", "profiling_name", "state", "retired", "is_p2p", "pg_id"]
    )
    @pytest.mark.parametrize("value", [None, -1, 2**80, "x" * 100_000, [[]], {"a": 1}, 1.5, True])
    def test_a_field_of_another_type_is_no_error(self, field: str, value: object, tmp_path: Path) -> None:
        read_flight_recorder(written(tmp_path, pickled(a_dump(an_entry(1) | {field: value}, an_entry(2)))))

    @pytest.mark.parametrize("field", ["pg_config", "pg_status"])
    @pytest.mark.parametrize(
        "value", [None, [], {"0": None}, {0: {"name": 3}}, {"0": {"name": "0", "desc": "d", "ranks": 7}}]
    )
    def test_a_table_of_another_type_is_no_error(self, field: str, value: object, tmp_path: Path) -> None:
        read_flight_recorder(written(tmp_path, pickled(a_dump(an_entry(1), **{field: value}))))

    def test_a_dump_of_an_earlier_hang_is_refused(self, tmp_path: Path) -> None:
        path = written(tmp_path, pickled(a_dump(an_entry(1))))
        os.utime(path, (1000.0, 1000.0))
        assert read_flight_recorder(path, newer_than=999.0)
        with pytest.raises(CannotRead, match="500 s too old"):
            read_flight_recorder(path, newer_than=1500.0)

    def test_a_pipe_and_a_link_hold_nothing_up(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        (tmp_path / "link").symlink_to("/dev/zero")
        for name in ("pipe", "link", "", "missing", "\0"):
            with pytest.raises(CannotRead):
                read_flight_recorder(str(tmp_path / name) if name != "\0" else "\0")
