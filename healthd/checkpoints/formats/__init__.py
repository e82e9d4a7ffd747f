"""The table of checkpoint formats. A new format is one module and one row."""

from __future__ import annotations

from healthd.checkpoints.formats.accelerate import Accelerate
from healthd.checkpoints.formats.composer import Composer
from healthd.checkpoints.formats.custom import BadDeclaration, parse_declaration
from healthd.checkpoints.formats.deepspeed import DeepSpeed
from healthd.checkpoints.formats.flax import Flax
from healthd.checkpoints.formats.format import Format, VerifyLevel
from healthd.checkpoints.formats.keras import Keras
from healthd.checkpoints.formats.lightgbm import LightGBM
from healthd.checkpoints.formats.lightning import Lightning
from healthd.checkpoints.formats.marked import Marked
from healthd.checkpoints.formats.megatron import Megatron
from healthd.checkpoints.formats.nemo import NeMo
from healthd.checkpoints.formats.numpy_files import NumPy
from healthd.checkpoints.formats.orbax import Orbax
from healthd.checkpoints.formats.paddle import Paddle
from healthd.checkpoints.formats.ray import Ray
from healthd.checkpoints.formats.safetensors import Safetensors
from healthd.checkpoints.formats.tensorflow import TensorFlow
from healthd.checkpoints.formats.torch_dcp import TorchDcp
from healthd.checkpoints.formats.torch_zip import TorchZip
from healthd.checkpoints.formats.trainer import Trainer
from healthd.checkpoints.formats.xgboost import XGBoost

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
