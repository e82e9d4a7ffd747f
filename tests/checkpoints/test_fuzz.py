"""Whatever happened to the bytes, the answer is a checkpoint or a reason; never a fault of healthd."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from tests.checkpoints.builders import REAL, refusal

pytestmark = pytest.mark.slow

ROUNDS = 60


def damaged(content: bytes, chance: random.Random) -> bytes:
    """One of: cut, a flipped bit, a few random bytes, a stretch of zeros."""
    at = chance.randrange(len(content))
    match chance.randrange(4):
        case 0:
            return content[:at]
        case 1:
            return content[:at] + bytes([content[at] ^ 1 << chance.randrange(8)]) + content[at + 1 :]
        case 2:
            return content[:at] + chance.randbytes(chance.randrange(1, 20)) + content[at + chance.randrange(20) :]
        case _:
            return content[:at] + bytes(min(64, len(content) - at)) + content[at + 64 :]


@pytest.mark.parametrize(
    ("checkpoint", "file"),
    [
        ("ckpt-10.pt", ""),
        ("model-10.safetensors", ""),
        ("step-10-single", ".metadata"),
        ("step-10-four-ranks", "__3_0.distcp"),
        ("deepspeed-zero3/global_step3", "zero_pp_rank_0_mp_rank_00_model_states.pt"),
        ("deepspeed-zero2/global_step3", "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"),
        ("megatron-dist/iter_0000020", "common.pt"),
        ("megatron-dist/iter_0000020", ".metadata"),
        ("trainer/checkpoint-4", "trainer_state.json"),
        ("accelerate/checkpoint_1", "random_states_0.pkl"),
        ("lightning/epoch=0-step=6.ckpt", ""),
        ("orbax/20", "_CHECKPOINT_METADATA"),
        ("orbax/20", "state/manifest.ocdbt"),
        ("numpy/step-10.npz", ""),
        ("numpy/step-20.npz", ""),
        ("flax/checkpoint_20", ""),
        ("tensorflow", "ckpt-20.index"),
        ("keras/epoch-20.keras", ""),
        ("xgboost/model_5.json", ""),
        ("xgboost/model_5.ubj", ""),
        ("lightgbm/model.txt.snapshot_iter_5", ""),
        ("keras/epoch-20.weights.h5", ""),
        ("keras/epoch-20-legacy.h5", ""),
    ],
)
def test_any_damage_ends_in_an_answer(tmp_path: Path, checkpoint: str, file: str) -> None:
    chance = random.Random(10)
    copy = tmp_path / Path(checkpoint).name
    shutil.copytree(REAL / checkpoint, copy) if file else shutil.copy(REAL / checkpoint, copy)
    target = copy / file if file else copy
    whole = target.read_bytes()
    reasons = []
    for _ in range(ROUNDS):
        target.write_bytes(damaged(whole, chance))
        reasons.append(refusal(copy))

    assert [reason for reason in reasons if "fault of healthd" in reason] == []
    assert sum(bool(reason) for reason in reasons) > ROUNDS / 3
