"""Steps are known by names alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from healthd.checkpoints.formats import declared
from healthd.checkpoints.nested import MOST_FOLDERS, nested
from healthd.checkpoints.step_names import is_step, natural, number_of, parse_step, series
from healthd.checkpoints.steps import UNKNOWN_STEP, find, newest_step, steps


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("step-10", 10),
        ("step_00010", 10),
        ("checkpoint-500", 500),
        ("checkpoint-500-best", 500),
        ("global_step10", 10),
        ("iter_0000010", 10),
        ("0000500", 500),
        ("10", 10),
        ("epoch_3", 3),
        ("model-10.safetensors", 10),
        ("ckpt-10.pt", 10),
        ("weights_10.pt", 10),
        ("state_10.pt", 10),
        ("epoch=1-step=500.ckpt", 500),
        ("ep1-ba200-rank0.pt", 200),
        ("checkpoint-500.pth.tar", 500),
        ("9epoch.pth", 9),
        ("rl_model_500_steps.zip", 500),
        ("weights.01-0.25.h5", 1),
        ("model-0012-250.5312.h5", 12),
        ("epoch=1-acc=95%.ckpt", 1),
        ("epoch=1,step=500.ckpt", 500),
        ("2026-11-30_01-02-03.pt", 20261130010203),
        ("model_2026-11-30_01-02-03.pt", 20261130010203),
        ("model-2026-11-30T010203.pth", 20261130010203),
        ("model_2026-11-30.pt", 20261130),
        ("step_500_2026-11-30_01-02-03.pt", 500),
    ],
)
def test_names_of_common_trainers_report_their_step(name: str, step: int) -> None:
    assert parse_step(name) == step


@pytest.mark.parametrize(
    "older_first",
    [
        ["checkpoint_1_120.pt", "checkpoint_1_1500.pt", "checkpoint_2_9500.pt", "checkpoint_10_20000.pt"],
        ["model_1_900.pt", "model_2_50.pt", "model_2_100.pt"],
        ["ckpt-0-5.pt", "ckpt-0-10.pt"],
        ["epoch-9-100.pt", "epoch-11-100.pt"],
        ["checkpoint-500-1795864772.pt", "checkpoint-1000-1795864000.pt"],
        ["model_epoch_9_step_100.pt", "model_epoch_11_step_100.pt"],
        ["step-9-best.pt", "step-100-best.pt"],
        ["step-1000-08-16.pt", "step-2000-08-16.pt", "step-3000-08-16.pt"],
        ["ckpt-1000-64-08.pt", "ckpt-2000-64-08.pt", "ckpt-3000-64-08.pt"],
        ["iter1000-08-16.pt", "iter2000-08-16.pt", "iter3000-08-16.pt"],
    ],
)
def test_of_names_with_two_numbers_the_later_save_is_newer(tmp_path: Path, older_first: list[str]) -> None:
    """Whether the second number goes on from epoch to epoch or begins anew."""
    fill(tmp_path, *sorted(older_first))

    assert [candidate.path.name for candidate in steps(tmp_path)] == older_first[::-1]


def test_each_save_of_an_epoch_is_a_further_step() -> None:
    assert parse_step("checkpoint_0_120.pt") == 120
    assert parse_step("checkpoint_3_1200.pt") == 3_000_001_200


@pytest.mark.parametrize(
    "name",
    [
        "latest",
        "model-00001-of-00004.safetensors",
        "rng_state_0.pth",
        "version_0",
        "2024-05-01",
        "events.out.tfevents.12",
        "run2",
        "model_70b",
        "step-10\n",
        "step-١٠",
        "step-" + "9" * 19,
    ],
)
def test_other_names_report_none(name: str) -> None:
    assert parse_step(name) is None


def test_newest_is_by_number_not_by_time(tmp_path: Path) -> None:
    for age, name in enumerate(["step-9", "step-100", "step-20"]):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (1_000_000 - age, 1_000_000 - age))

    assert [candidate.step for candidate in steps(tmp_path)] == [100, 20, 9]
    assert newest_step(tmp_path) == 100


@pytest.mark.parametrize(
    "name",
    [
        "step-30.tmp",
        "step-30.tmp-8341",
        ".step-30",
        "tmp-checkpoint-30",
        "step-30.partial",
        "30.orbax-checkpoint-tmp-17",
        "step-30-unfinished",
        "step-30~",
    ],
)
def test_temporary_names_are_no_candidates_but_are_reported(tmp_path: Path, name: str) -> None:
    (tmp_path / "step-20").mkdir()
    (tmp_path / name).mkdir()

    assert [candidate.step for candidate in steps(tmp_path)] == [20]
    assert [(c.step, c.unfinished) for c in find(tmp_path)] == [(30, "not finished: temporary name"), (20, "")]


def test_a_sibling_that_says_unfinished_is_believed(tmp_path: Path) -> None:
    (tmp_path / "step-30").mkdir()
    (tmp_path / "step-30-unfinished").touch()

    assert steps(tmp_path) == []


def test_a_file_counts_only_when_a_format_owns_it(tmp_path: Path) -> None:
    for name in ["ckpt-10.pt", "step-20.json", "step-30.log"]:
        (tmp_path / name).touch()

    assert [candidate.path.name for candidate in steps(tmp_path)] == ["ckpt-10.pt"]


def test_text_pointers_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "global_step10").mkdir()
    (tmp_path / "latest").write_text("global_step99")

    assert newest_step(tmp_path) == 10


def test_one_checkpoint_may_be_named_itself(tmp_path: Path) -> None:
    (tmp_path / "checkpoint-500" / "global_step500").mkdir(parents=True)
    (tmp_path / "checkpoint-500" / "model_1.safetensors").touch()
    (tmp_path / "final").mkdir()
    (tmp_path / "final" / "model.safetensors").touch()

    assert [c.step for c in steps(tmp_path / "checkpoint-500")] == [500]
    assert [(c.path.name, c.step) for c in steps(tmp_path / "final")] == [("model.safetensors", UNKNOWN_STEP)]
    assert newest_step(tmp_path / "final") is None


@pytest.mark.parametrize("root", ["7", "007", "4711234", "20261128", "checkpoint-2", "step-7", "epoch-1"])
@pytest.mark.parametrize("pattern", ["step-{}.safetensors", "epoch={}.ckpt", "iter_{}.pt", "ckpt-{}.pt"])
def test_a_folder_of_steps_may_have_the_name_of_a_step(tmp_path: Path, root: str, pattern: str) -> None:
    """Such as the number of a job, or a date."""
    fill(tmp_path / root, *(pattern.format(step) for step in (20, 40)))

    assert [(c.path.name, c.step) for c in steps(tmp_path / root)] == [
        (pattern.format(40), 40),
        (pattern.format(20), 20),
    ]


@pytest.mark.parametrize(
    "names",
    [
        ["model_0.pt", "model_1.pt", "model_2.pt"],
        ["model_500.pt", "optim_500.pt", "config.json"],
        ["0.pt", "1.pt"],
        ["global_step500/x.pt", "model_3.pt"],
        ["model.safetensors", "optimizer.pt"],
    ],
)
def test_a_checkpoint_may_have_numbered_parts(tmp_path: Path, names: list[str]) -> None:
    root = fill(tmp_path / "checkpoint-500", *names)

    assert [(candidate.path, candidate.step) for candidate in steps(root)] == [(root, 500)]


@pytest.mark.parametrize(
    "pattern",
    [
        "llama-7b-{}.safetensors",
        "gpt2-{}.pt",
        "resnet50_{}.pth",
        "net_g_{}.pth",
        "{}_G.pth",
        "{}epoch.pth",
        "ema_0.9999_{}.pt",
        "step {}.safetensors",
        "модель-{}.pt",
    ],
)
def test_files_that_differ_in_a_number_alone_are_steps(tmp_path: Path, pattern: str) -> None:
    fill(tmp_path, *(pattern.format(step) for step in (900, 5000)), "train.log")

    assert [(c.path.name, c.step) for c in steps(tmp_path)] == [
        (pattern.format(5000), 5000),
        (pattern.format(900), 900),
    ]


@pytest.mark.parametrize(
    "names",
    [
        ["piece_0.pt", "piece_1.pt", "piece_2.pt"],
        ["llama-8.pt", "llama-9.pt"],
        ["weights_rank_0.pt", "weights_rank_8.pt"],
        ["layer_01-part_00-x.pt", "layer_03-part_00-x.pt"],
        ["resnet50.pth", "resnet101.pth"],
    ],
)
def test_files_that_may_be_parts_are_one_checkpoint(tmp_path: Path, names: list[str]) -> None:
    assert [(c.path, c.step) for c in steps(fill(tmp_path, *names))] == [(tmp_path, UNKNOWN_STEP)]


def test_of_several_rows_of_numbered_files_none_is_chosen(tmp_path: Path) -> None:
    """Those of a generator and a discriminator: one alone is half of a step."""
    fill(tmp_path, *(f"net{which}_{step}.pth" for which in "DG" for step in (500, 1000)))

    [found] = find(tmp_path)

    assert "several files" in found.unfinished
    assert "declare a layout" in found.unfinished


@pytest.mark.parametrize(
    "weights", ["model.safetensors", "pytorch_model.bin", "model.safetensors.index.json", "model.fp16.safetensors"]
)
def test_numbered_files_beside_a_whole_model_may_be_parts_of_it(tmp_path: Path, weights: str) -> None:
    fill(tmp_path, "config.json", weights, "expert_weights_3.pt", "expert_weights_7.pt")

    [found] = find(tmp_path)

    assert found.path == tmp_path
    assert f"several files here (expert_weights_3.pt, {weights})" in found.unfinished


@pytest.mark.parametrize("beside", ["config.json", "model.safetensors", "best.pt"])
def test_a_configuration_or_other_weights_alone_do_not_hide_steps(tmp_path: Path, beside: str) -> None:
    assert [candidate.step for candidate in steps(fill(tmp_path, beside, "llama-3.pt", "llama-7.pt"))] == [7, 3]


@pytest.mark.parametrize("name", ["step-30.weights", "checkpoint-30.dat", "state_30.pkl", "step-30", "ckpt-30.pt.gz"])
def test_a_saved_step_of_no_known_format_is_never_overlooked(tmp_path: Path, name: str) -> None:
    fill(tmp_path, "ckpt-10.pt", name)

    refused, taken = find(tmp_path)

    assert (refused.path.name, refused.step, taken.path.name) == (name, 30, "ckpt-10.pt")
    assert "declare a layout" in refused.unfinished
    assert newest_step(tmp_path) == 10


def test_a_saved_step_of_no_known_format_is_not_overlooked_where_a_known_one_is_declared(tmp_path: Path) -> None:
    [refused] = find(fill(tmp_path, "step-30.dat"), declared("torch_zip"))

    assert (refused.step, refused.is_undeclared) == (30, True)


NANOSECONDS = (1795864772123456789, 1795864999123456789)


@pytest.mark.parametrize(
    "pattern", ["step-{}/model.pt", "{}/model.pt", "ckpt-{}.pt", "llama-{}.pt", "step-{}.dat", "ckpt-{}.index"]
)
def test_a_number_that_is_too_large_for_a_step_is_named_as_such(tmp_path: Path, pattern: str) -> None:
    """Such as a time in nanoseconds. A run must not begin at step 0 beside them without a word."""
    found = find(fill(tmp_path, *map(pattern.format, NANOSECONDS)))

    assert [candidate.path.name for candidate in found] == [
        pattern.format(time).partition("/")[0].removesuffix(".index") for time in NANOSECONDS[::-1]
    ]
    assert {(candidate.step, candidate.is_undeclared) for candidate in found} == {(UNKNOWN_STEP, True)}
    assert "at most 18 digits" in found[0].unfinished


@pytest.mark.parametrize("name", ["step-{}", "{}", "{}_steps", "a-{}.pt", "checkpoint-{}"])
def test_thousands_of_digits_are_no_number(name: str) -> None:
    """A location that a tenant wrote, or a path in the last words of a rank, is longer than any name of a file."""
    long, longer = (name.format("9" * digits) for digits in (5000, 5001))

    assert (number_of(long), parse_step(long), is_step(long), series([long, longer])) == (None, None, False, [])
    assert natural(long) < natural(longer)


@pytest.mark.parametrize("layout", ["marked:DONE", '{files: ["part-*.pt"]}'])
def test_files_of_a_layout_that_describes_one_step_may_have_any_numbers(tmp_path: Path, layout: str) -> None:
    root = fill(tmp_path, "part-a-10.pt", "part-a-30.pt", "DONE")

    assert [candidate.path for candidate in find(root, declared(layout))] == [root]


@pytest.mark.parametrize("name", ["step-30.log", "step-30.json", "step-30.png", "step-30.log.gz", "ckpt-10.weights"])
def test_what_lies_beside_the_checkpoints_is_none(tmp_path: Path, name: str) -> None:
    fill(tmp_path, "ckpt-10.pt", name)

    assert [candidate.path.name for candidate in find(tmp_path)] == ["ckpt-10.pt"]


def test_a_root_that_is_not_there_yet_has_no_steps(tmp_path: Path) -> None:
    assert steps(tmp_path / "later") == []
    assert newest_step(tmp_path / "later") is None


def test_a_root_with_logs_alone_has_no_steps(tmp_path: Path) -> None:
    (tmp_path / "train.log").touch()

    assert steps(tmp_path) == []


def fill(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


@pytest.mark.parametrize("name", ["ckpt.pt", "checkpoint_latest.pt", "model.safetensors", "last.ckpt"])
@pytest.mark.parametrize("beside", ["train.log", "ckpt.pt.tmp", ".ckpt.pt", "logs/events"])
def test_the_only_file_stands_for_the_directory(tmp_path: Path, name: str, beside: str) -> None:
    found = steps(fill(tmp_path, name, beside))

    assert [(candidate.path, candidate.step) for candidate in found] == [(tmp_path / name, UNKNOWN_STEP)]


@pytest.mark.parametrize(
    ("name", "best"),
    [
        ("checkpoint.pth.tar", "model_best.pth.tar"),
        ("last.pt", "best.pt"),
        ("latest.pth", "Best-Model.pth"),
    ],
)
def test_a_copy_of_the_best_beside_the_only_file_changes_nothing(tmp_path: Path, name: str, best: str) -> None:
    assert [candidate.path for candidate in steps(fill(tmp_path, name, best))] == [tmp_path / name]


def test_the_best_alone_is_the_only_file(tmp_path: Path) -> None:
    assert [candidate.path for candidate in steps(fill(tmp_path, "best.pt"))] == [tmp_path / "best.pt"]


def test_a_declared_layout_of_two_files_stays_a_directory(tmp_path: Path) -> None:
    layout = declared('{files: ["last.pt", "best.pt"]}')

    assert [candidate.path for candidate in steps(fill(tmp_path, "last.pt", "best.pt"), layout)] == [tmp_path]


@pytest.mark.parametrize(
    "names",
    [
        ["model.safetensors", "optimizer.pt"],
        ["model.safetensors", "config.json"],
        ["model.safetensors.index.json"],
        ["model-00001-of-00002.safetensors"],
        ["__0_0.distcp"],
        [".metadata"],
        ["ckpt.pt/part"],
    ],
)
def test_what_does_not_load_as_one_file_stays_a_directory(tmp_path: Path, names: list[str]) -> None:
    assert [candidate.path for candidate in steps(fill(tmp_path, *names))] == [tmp_path]


def test_the_only_file_of_a_step_stays_that_step(tmp_path: Path) -> None:
    root = fill(tmp_path / "checkpoint-500", "model.safetensors")

    assert [(candidate.path, candidate.step) for candidate in steps(root)] == [(root, 500)]


def test_a_link_to_the_latest_beside_the_steps_is_only_a_hint(tmp_path: Path) -> None:
    fill(tmp_path, "step-10.pt", "step-20.pt")
    (tmp_path / "latest.pt").symlink_to("step-20.pt")

    assert [candidate.path.name for candidate in steps(tmp_path)] == ["step-20.pt", "step-10.pt"]


@pytest.mark.parametrize(
    ("file", "folder", "step"),
    [
        ("run1/checkpoint-100/model.safetensors", "run1", 100),
        ("run1/ckpt.pt", "run1", UNKNOWN_STEP),
        ("version_0/checkpoints/epoch=1-step=500.ckpt", "version_0/checkpoints", 500),
        ("lightning_logs/version_0/checkpoints/epoch=1-step=500.ckpt", "lightning_logs/version_0/checkpoints", 500),
    ],
)
def test_folders_that_hold_checkpoints_are_found_below(tmp_path: Path, file: str, folder: str, step: int) -> None:
    found = nested(fill(tmp_path, file))

    assert [(candidate.path, candidate.step) for candidate in found] == [(tmp_path / folder, step)]


@pytest.mark.parametrize(
    "file",
    ["images/0001/cat.png", "run1/train.log", ".cache/hub/ckpt.pt", "a/b/c/d/ckpt-10.pt", "run1/step-10.tmp/ckpt.pt"],
)
def test_folders_without_a_checkpoint_are_not_reported(tmp_path: Path, file: str) -> None:
    assert nested(fill(tmp_path, file)) == []


def test_the_search_below_has_a_bound(tmp_path: Path) -> None:
    for number in range(MOST_FOLDERS):
        (tmp_path / f"a{number}").mkdir()
    fill(tmp_path, "b/ckpt-10.pt")

    assert nested(tmp_path) == []


def test_the_search_below_follows_no_link(tmp_path: Path) -> None:
    fill(tmp_path, "elsewhere/ckpt-10.pt")
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "run").symlink_to(tmp_path / "elsewhere")

    assert nested(tmp_path / "root") == []


@pytest.mark.parametrize("pattern", ["{}.pt", "llama-{}.pt", "model_{}.pt"])
@pytest.mark.parametrize("times", [("2026-11-29", "2026-11-30"), ("2026-11-30_23-59-59", "2026-12-01_00-00-00")])
def test_files_that_are_called_by_times_are_steps(tmp_path: Path, pattern: str, times: tuple[str, str]) -> None:
    for time in times:
        (tmp_path / pattern.format(time)).touch()

    newest, older = steps(tmp_path)

    assert newest.path.name == pattern.format(times[1])
    assert newest.step > older.step


def test_a_folder_that_is_called_by_a_time_is_a_run_and_no_step(tmp_path: Path) -> None:
    (tmp_path / "2026-11-30" / "01-02-03").mkdir(parents=True)
    (tmp_path / "2026-11-30" / "01-02-03" / "step-5.pt").touch()

    assert not steps(tmp_path)
