"""The newest that holds is found; each newer one is reported with its reason."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from healthd.checkpoints.formats import UnknownFormat
from healthd.checkpoints.latest import (
    DOUBTED,
    UNKNOWN_STEP,
    Cache,
    Candidate,
    Checkpoint,
    Rejected,
    VerifyLevel,
    latest,
    newest_step,
    verify,
)
from healthd.checkpoints.tree import Damaged, Tree, survey
from healthd.core.checkpoint.verification import SaveId
from tests.checkpoints.builders import REAL, a_sharded_step, refusal, safetensors_bytes, shard_name, torch_zip_bytes


class Meddling:
    """A format that accepts everything, and does something to the files while it reads."""

    name = "meddling"

    def __init__(self, act: Callable[[], object]) -> None:
        self.act = act
        self.reads = 0

    def owns(self, filename: str) -> bool:
        return True

    def detect(self, tree: Tree) -> bool:
        return True

    def verify(self, tree: Tree, level: VerifyLevel) -> None:
        self.reads += 1
        self.act()


def a_run(root: Path, *step_numbers: int) -> Path:
    for step in step_numbers:
        a_sharded_step(root, step)
    return root


def tear(root: Path, step: int) -> None:
    os.truncate(root / f"step-{step:06}" / shard_name(1, 4), 200)


def reported(found: Checkpoint | None) -> tuple[str, int, str] | None:
    """All but the time."""
    return (found.path, found.step, found.format) if found else None


def test_the_newest_that_holds_is_found(tmp_path: Path) -> None:
    answer = latest(a_run(tmp_path, 10, 20, 30))

    assert reported(answer.found) == (str(tmp_path / "step-000030"), 30, "safetensors")
    assert answer.rejected == ()


def test_it_falls_back_step_by_step(tmp_path: Path) -> None:
    a_run(tmp_path, 10, 20, 30, 40)
    for step in (40, 30, 20):
        tear(tmp_path, step)

    answer = latest(tmp_path)

    assert answer.found is not None
    assert answer.found.step == 10
    assert [rejected.step for rejected in answer.rejected] == [40, 30, 20]
    assert all("200 of " in rejected.reason for rejected in answer.rejected)


def test_with_none_that_holds_all_are_reported(tmp_path: Path) -> None:
    a_run(tmp_path, 10, 20)
    tear(tmp_path, 10)
    tear(tmp_path, 20)

    answer = latest(tmp_path)

    assert answer.found is None
    assert [rejected.step for rejected in answer.rejected] == [20, 10]


def test_an_unfinished_newest_is_reported(tmp_path: Path) -> None:
    a_run(tmp_path, 10)
    (tmp_path / "step-000020.tmp").mkdir()

    answer = latest(tmp_path)

    assert answer.found is not None
    assert [(r.step, r.reason) for r in answer.rejected] == [(20, "not finished: temporary name")]


def test_only_steps_that_are_newer_are_read(tmp_path: Path) -> None:
    a_run(tmp_path, 10, 20, 30)
    tear(tmp_path, 30)

    answer = latest(tmp_path, newer_than=20)

    assert answer.found is None
    assert [rejected.step for rejected in answer.rejected] == [30]


def a_save(run: Path) -> SaveId:
    """What tells the newest checkpoint of *run* from others."""
    found = latest(run).found
    assert found is not None
    return SaveId(found.step, found.saved_ns)


def test_a_doubted_one_makes_room_for_the_one_before_it(tmp_path: Path) -> None:
    doubted = a_save(a_run(tmp_path, 10, 20, 30))

    answer = latest(tmp_path, doubted=[doubted])

    assert answer.found is not None
    assert answer.found.step == 20
    assert [(r.step, r.reason == DOUBTED) for r in answer.rejected] == [(30, True)]


def test_a_doubted_one_is_taken_where_there_is_no_other_that_holds(tmp_path: Path) -> None:
    doubted = a_save(a_run(tmp_path, 10, 20))
    tear(tmp_path, 10)

    answer = latest(tmp_path, doubted=[doubted])

    assert answer.found is not None
    assert (answer.found.step, answer.rejected) == (20, ())


def test_a_doubted_one_is_no_progress_and_hides_none(tmp_path: Path) -> None:
    doubted = a_save(a_run(tmp_path, 10, 30))

    before = latest(tmp_path, newer_than=10, doubted=[doubted])
    a_run(tmp_path, 20)
    after = latest(tmp_path, newer_than=10, doubted=[doubted])

    assert before.found is None
    assert after.found is not None
    assert after.found.step == 20


def test_a_save_in_place_of_a_doubted_one_is_another(tmp_path: Path) -> None:
    doubted = a_save(a_run(tmp_path, 10, 20))

    answer = latest(tmp_path, doubted=[SaveId(doubted.step, doubted.saved_ns - 1)])

    assert answer.found is not None
    assert answer.found.step == 20


def test_a_root_that_is_not_there_yet_is_empty(tmp_path: Path) -> None:
    answer = latest(tmp_path / "later")

    assert (answer.found, answer.rejected) == (None, ())


@pytest.mark.parametrize(
    ("name", "format"),
    [
        ("ckpt-10.pt", "torch_zip"),
        ("model-10.safetensors", "safetensors"),
        ("step-10-single", "torch_dcp"),
        ("step-10-four-ranks", "torch_dcp"),
    ],
)
def test_a_root_may_be_one_checkpoint_of_any_format(name: str, format: str) -> None:  # noqa: A002 - as in the answer
    answer = latest(REAL / name)

    assert reported(answer.found) == (str(REAL / name), 10, format)


def test_a_file_that_is_overwritten_each_time_is_found_by_its_own_path(tmp_path: Path) -> None:
    (tmp_path / "ckpt.pt").write_bytes(torch_zip_bytes())

    assert reported(latest(tmp_path).found) == (str(tmp_path / "ckpt.pt"), UNKNOWN_STEP, "torch_zip")


def test_a_marker_beside_the_only_file_keeps_both_together(tmp_path: Path) -> None:
    (tmp_path / "ckpt.pt").write_bytes(torch_zip_bytes())
    (tmp_path / "DONE").touch()

    assert reported(latest(tmp_path, format="marked:DONE").found) == (str(tmp_path), UNKNOWN_STEP, "marked")


def test_a_checkpoint_reports_when_its_newest_file_was_saved(tmp_path: Path) -> None:
    folder = a_sharded_step(tmp_path, 10)
    for age, file in enumerate(sorted(folder.iterdir())):
        os.utime(file, ns=(1, 1_000 - age))

    found = latest(tmp_path).found

    assert found is not None
    assert found.saved_ns == 1_000


def test_a_save_in_place_is_seen_though_the_name_stays(tmp_path: Path) -> None:
    file, cache = tmp_path / "ckpt.pt", Cache()
    file.write_bytes(torch_zip_bytes())
    saved = []
    for now in (1_000, 2_000):
        os.utime(file, ns=(now, now))
        found = latest(tmp_path, cache=cache).found
        saved.append(found.saved_ns if found else None)

    assert saved == [1_000, 2_000]


def test_a_log_that_grows_beside_a_checkpoint_is_no_save(tmp_path: Path) -> None:
    folder = a_sharded_step(tmp_path, 10)
    for file in folder.iterdir():
        os.utime(file, ns=(1_000, 1_000))
    (folder / "train.log").touch()

    found = latest(tmp_path).found

    assert found is not None
    assert found.saved_ns == 1_000


def test_checkpoints_one_folder_too_deep_are_reported_and_not_taken(tmp_path: Path) -> None:
    a_run(tmp_path / "run1", 10, 100)
    a_run(tmp_path / "run2", 50)

    answer = latest(tmp_path)

    reason = f"holds checkpoints, but healthd reads only directly below {tmp_path}: "
    assert answer.found is None
    assert [(r.path, r.step) for r in answer.rejected] == [(str(tmp_path / "run1"), 100), (str(tmp_path / "run2"), 50)]
    assert {r.reason for r in answer.rejected} == {reason + "name this folder as the checkpoint location"}
    assert newest_step(tmp_path) is None


def test_one_checkpoint_at_the_root_is_enough_to_look_no_deeper(tmp_path: Path) -> None:
    a_run(tmp_path / "run1", 100)
    a_run(tmp_path, 10)

    answer = latest(tmp_path)

    assert answer.found is not None
    assert (answer.found.step, answer.rejected) == (10, ())


def test_a_read_for_progress_does_not_search_deeper(tmp_path: Path) -> None:
    a_run(tmp_path / "run1", 100)

    assert latest(tmp_path, newer_than=-1).rejected == ()


def test_a_declared_format_is_required(tmp_path: Path) -> None:
    answer = latest(a_run(tmp_path, 10), format="torch_dcp")

    assert answer.found is None
    assert answer.rejected[0].reason == "nothing of the declared format torch_dcp in it"


def test_an_unknown_format_is_an_error_of_the_caller(tmp_path: Path) -> None:
    with pytest.raises(UnknownFormat):
        latest(tmp_path, format="onnx")


def test_an_empty_step_is_refused(tmp_path: Path) -> None:
    (tmp_path / "step-10").mkdir()

    assert refusal(tmp_path / "step-10") == "an empty directory"


def test_a_step_of_no_known_format_says_what_is_in_it(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()

    assert refusal(tmp_path).startswith("no known checkpoint format in it (notes.txt)")


@pytest.mark.parametrize(
    ("act", "why"),
    [
        (lambda f: f.write_bytes(b"longer than before"), "weights: changed while being read"),
        (lambda f: os.utime(f, ns=(1, 1)), "weights: changed while being read"),
        (
            lambda f: shutil.copy2(f, f.with_name("x")) and f.with_name("x").rename(f),
            "weights: changed while being read",
        ),
        (lambda f: f.unlink(), "weights: deleted while being read"),
        (lambda f: shutil.rmtree(f.parent), "step-10: not there (deleted meanwhile?)"),
        (lambda f: (f.parent / "late").touch(), "late: appeared while the checkpoint was being read"),
    ],
    ids=["rewritten", "touched", "replaced", "deleted", "step deleted", "added"],
)
def test_a_checkpoint_that_changes_while_it_is_read_is_refused(
    tmp_path: Path, act: Callable[[Path], object], why: str
) -> None:
    file = tmp_path / "step-10" / "weights"
    file.parent.mkdir()
    file.write_bytes(b"before")

    outcome = verify(Candidate(path=file.parent, step=10), formats=[Meddling(lambda: act(file))])

    assert isinstance(outcome, Rejected)
    assert outcome.reason == why


def test_a_step_that_vanishes_does_not_end_the_search(tmp_path: Path) -> None:
    outcome = verify(Candidate(path=tmp_path / "step-10", step=10))

    assert isinstance(outcome, Rejected)
    assert outcome.reason == "step-10: not there (deleted meanwhile?)"


def test_a_fault_of_a_format_is_a_refusal(tmp_path: Path) -> None:
    (tmp_path / "weights").touch()

    outcome = verify(Candidate(path=tmp_path, step=10), formats=[Meddling(lambda: 1 // 0)])

    assert isinstance(outcome, Rejected)
    assert "a fault of healthd: ZeroDivisionError" in outcome.reason
    assert outcome.unread


def test_the_cache_spares_the_second_reading(tmp_path: Path) -> None:
    (tmp_path / "weights").touch()
    cache, format_ = Cache(), Meddling(lambda: None)
    candidate = Candidate(path=tmp_path, step=10)

    first = verify(candidate, cache=cache, formats=[format_])
    second = verify(candidate, cache=cache, formats=[format_])

    assert first == second
    assert format_.reads == 1


def test_a_refusal_is_read_again(tmp_path: Path) -> None:
    (tmp_path / "weights").touch()
    troubles = [Damaged("weights: input/output error")]
    cache, format_ = Cache(), Meddling(lambda: raise_next(troubles))
    candidate = Candidate(path=tmp_path, step=10)

    first = verify(candidate, cache=cache, formats=[format_])
    second = verify(candidate, cache=cache, formats=[format_])

    assert isinstance(first, Rejected)
    assert isinstance(second, Checkpoint)


def raise_next(troubles: list[Damaged]) -> None:
    if troubles:
        raise troubles.pop()


def test_the_cache_forgets_what_changed(tmp_path: Path) -> None:
    a_run(tmp_path, 10)
    cache = Cache()
    latest(tmp_path, cache=cache)
    tear(tmp_path, 10)

    assert latest(tmp_path, cache=cache).found is None


def test_a_quick_proof_does_not_stand_for_a_full_one(tmp_path: Path) -> None:
    damaged = bytearray(torch_zip_bytes())
    damaged[damaged.index(b"\1" * 64)] = 0
    (tmp_path / "ckpt-10.pt").write_bytes(damaged)
    cache = Cache()

    assert latest(tmp_path, level=VerifyLevel.QUICK, cache=cache).found is not None
    assert latest(tmp_path, level=VerifyLevel.FULL, cache=cache).found is None
    assert latest(tmp_path, level=VerifyLevel.QUICK, cache=cache).found is None


def test_what_is_not_a_file_is_never_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model.safetensors")

    assert refusal(tmp_path) == "model.safetensors: a FIFO, not a regular file"


def test_a_socket_is_not_opened(tmp_path: Path) -> None:
    here = Path.cwd()
    with socket.socket(socket.AF_UNIX) as listener:
        os.chdir(tmp_path)
        try:
            listener.bind("ckpt-10.pt")
        finally:
            os.chdir(here)

    assert refusal(tmp_path / "ckpt-10.pt") == "ckpt-10.pt: a socket, not a regular file"


def test_a_device_is_not_opened(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").symlink_to("/dev/zero")

    assert refusal(tmp_path) == "model.safetensors: a device, not a regular file"


def test_links_in_a_circle_are_refused(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").symlink_to("model.safetensors")
    (tmp_path / "deeper").symlink_to(tmp_path)

    assert refusal(tmp_path) == "model.safetensors: a link that leads in a circle, not a regular file"


def test_a_step_that_is_a_link_in_a_circle_is_refused(tmp_path: Path) -> None:
    (tmp_path / "step-10").symlink_to("step-10")
    a_run(tmp_path, 5)

    assert reported(latest(tmp_path).found) == (str(tmp_path / "step-000005"), 5, "safetensors")


def test_files_may_be_links_into_a_store(tmp_path: Path) -> None:
    (tmp_path / "blob").write_bytes(safetensors_bytes({"w": 1}))
    (tmp_path / "step-10").mkdir()
    (tmp_path / "step-10" / "model.safetensors").symlink_to("../blob")

    assert refusal(tmp_path / "step-10") == ""


def test_folders_nested_without_end_are_refused(tmp_path: Path) -> None:
    tmp_path.joinpath(*["d"] * 40).mkdir(parents=True)

    assert "nested deeper than 16 directories" in refusal(tmp_path)


def test_a_name_made_to_fool_a_terminal_is_escaped(tmp_path: Path) -> None:
    (tmp_path / "\x1b[2Jmodel\n.safetensors").touch()
    (tmp_path / os.fsdecode(b"\xff.txt")).touch()

    assert refusal(tmp_path) == r"\u001b[2Jmodel\u000a.safetensors: empty file"


@pytest.fixture
def no_one() -> Iterator[Path]:
    """A directory of an ordinary user, as whom the test runs: root may read everything."""
    with tempfile.TemporaryDirectory() as scratch:
        user = os.geteuid()
        Path(scratch).chmod(0o777)
        os.seteuid(user or 65534)
        try:
            yield Path(scratch)
        finally:
            os.seteuid(user)


def test_no_permission_to_read_a_file_is_an_answer(no_one: Path) -> None:
    folder = a_sharded_step(no_one, 10)
    (folder / shard_name(0, 4)).chmod(0)

    assert refusal(folder).startswith(f"{shard_name(0, 4)}: permission denied")
    assert latest(no_one).rejected[0].unread


def test_a_torn_file_was_read_and_will_not_load_later_either(tmp_path: Path) -> None:
    folder = a_sharded_step(tmp_path, 10)
    os.truncate(folder / shard_name(0, 4), 20)

    assert not latest(tmp_path).rejected[0].unread


def test_no_permission_to_look_into_the_root_is_an_answer(no_one: Path) -> None:
    a_run(no_one / "run", 10)
    (no_one / "run").chmod(0)

    answer = latest(no_one / "run")

    assert answer.found is None
    assert "permission denied" in answer.rejected[0].reason
    assert newest_step(no_one / "run") is None


def test_too_many_entries_are_refused(tmp_path: Path) -> None:
    a_sharded_step(tmp_path, 10)

    with pytest.raises(Damaged, match="more than 3 entries"):
        survey(tmp_path, most_entries=3)


def test_folders_of_one_step_are_one_checkpoint_only_below_one_folder(tmp_path: Path) -> None:
    """The limit that docs/checkpoints.md names: of two folders beside each other only the model is looked at."""
    whole = safetensors_bytes({"w": 1})
    apart = {"ckpt_20/model.safetensors": whole, "optimizer_20/optimizer.safetensors": whole[:-1]}
    together = {"step_20/model/model.safetensors": whole, "step_20/optimizer/optimizer.safetensors": whole[:-1]}
    for root, files in ((tmp_path / "apart", apart), (tmp_path / "together", together)):
        for name, content in files.items():
            (root / name).parent.mkdir(parents=True)
            (root / name).write_bytes(content)

    found = latest(tmp_path / "apart").found

    assert found is not None
    assert Path(found.path).name == "ckpt_20"
    assert latest(tmp_path / "together").found is None
