"""
The table of checkpoint formats. A new format is one module, in the folder of its family, and one row.

A trainer's format says what stands around a model's files (`trainers/`), the others when those are whole (`torch/`,
`arrays/`, `boosting/`): of a checkpoint all that are found in it have to hold. `layouts/`: what a user declares.
"""

from __future__ import annotations

from healthd.checkpoints.formats.arrays.flax import Flax
from healthd.checkpoints.formats.arrays.keras import Keras
from healthd.checkpoints.formats.arrays.numpy_files import NumPy
from healthd.checkpoints.formats.arrays.orbax import Orbax
from healthd.checkpoints.formats.arrays.paddle import Paddle
from healthd.checkpoints.formats.arrays.tensorflow import TensorFlow
from healthd.checkpoints.formats.boosting.lightgbm import LightGBM
from healthd.checkpoints.formats.boosting.xgboost import XGBoost
from healthd.checkpoints.formats.format import Format, VerifyLevel
from healthd.checkpoints.formats.layouts.custom import BadDeclaration, parse_declaration
from healthd.checkpoints.formats.layouts.marked import Marked
from healthd.checkpoints.formats.torch.safetensors import Safetensors
from healthd.checkpoints.formats.torch.torch_dcp import TorchDcp
from healthd.checkpoints.formats.torch.torch_zip import TorchZip
from healthd.checkpoints.formats.trainers.accelerate import Accelerate
from healthd.checkpoints.formats.trainers.composer import Composer
from healthd.checkpoints.formats.trainers.deepspeed import DeepSpeed
from healthd.checkpoints.formats.trainers.lightning import Lightning
from healthd.checkpoints.formats.trainers.megatron import Megatron
from healthd.checkpoints.formats.trainers.nemo import NeMo
from healthd.checkpoints.formats.trainers.ray import Ray
from healthd.checkpoints.formats.trainers.trainer import Trainer

__all__ = ["FORMATS", "Format", "UnknownFormat", "VerifyLevel", "declared", "recognises"]

_OF_FILES: tuple[Format, ...] = (
    Trainer(),
    Accelerate(),
    Lightning(),
    Composer(),
    DeepSpeed(),
    Megatron(),
    Orbax(),
    TorchDcp(),
    Safetensors(),
    TorchZip(),
    TensorFlow(),
    Keras(),
    Flax(),
    Paddle(),
    XGBoost(),
    LightGBM(),
    NumPy(),
    Marked(),
)
FORMATS: tuple[Format, ...] = (*_OF_FILES, NeMo(_OF_FILES), Ray(_OF_FILES))
"""The most specific first: the first format found in a checkpoint gives it its format name."""


class UnknownFormat(ValueError):
    """A format was declared that is not in the table."""


def declared(spec: str) -> Format:
    """
    The format that a user declared: a name of the table, `marked:NAME` for a marker file, or a custom layout in YAML
    (see `custom`). Raises UnknownFormat.
    """
    if "\n" in spec.strip() or spec.lstrip().startswith("{") or ": " in spec:
        try:
            return parse_declaration(spec)
        except BadDeclaration as error:
            raise UnknownFormat(str(error)) from error
    name, colon, argument = spec.partition(":")
    if name == Marked.name and argument and "/" not in argument:
        return Marked(marker=argument)
    known = {fmt.name: fmt for fmt in FORMATS}
    if colon or name not in known:
        names = ", ".join(known)
        raise UnknownFormat(
            f"unknown checkpoint format {spec[:80]!r}: use one of {names}, marked:MARKER-FILE, or a layout in YAML"
        )
    return known[name]


def recognises(filename: str) -> bool:
    """Whether any format owns a file of this name."""
    return any(fmt.owns(filename) for fmt in FORMATS)
