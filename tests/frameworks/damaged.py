"""
Save with the real libraries of the torch family, damage what they saved, and compare healthd's word with their loaders.

`python -m tests.frameworks.damaged`, run by hand where torch, safetensors, transformers, accelerate and zstandard are.
Each file is cut, emptied and dropped; blocks of it become zeros or garbage, all from the border of a block to its end
become zeros, as after a power cut; it is exchanged with another file and with that of another step. Prints each case
in which healthd says good and the library fails, or refuses what loads as it was saved; then the counts.
"""

# mypy: ignore-errors
from __future__ import annotations

import argparse
import logging
import os
import random
import re
import shutil
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp
from torch import nn

from tests.checkpoints.damage import word
from tests.frameworks.compare_with_loaders import why_it_fails
from tests.frameworks.saving import OtherValues
from tests.frameworks.writers_torch import expect, gloo, in_ranks

BLOCK = 4096
WIDTH = 96
SAME = "as saved"


def a_training(step: int):
    """A model, its optimizer and its scheduler after some steps."""
    torch.manual_seed(step)
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(4)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)
    for _ in range(2):
        model(torch.randn(2, WIDTH)).sum().backward()
        optimizer.step()
        scheduler.step()
    return model, optimizer, scheduler


def a_state(step: int) -> dict[str, object]:
    """What a script saves of it."""
    model, optimizer, scheduler = a_training(step)
    rng = torch.get_rng_state()
    parts = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}
    return {**parts, "rng": rng, "step": step, "lr": 1 / step}


def blank(state: object) -> object:
    """The same with other values, to be loaded into."""
    if isinstance(state, dict):
        return {key: blank(value) for key, value in state.items()}
    if isinstance(state, list):
        return [blank(value) for value in state]
    return torch.zeros_like(state) if isinstance(state, torch.Tensor) else state


def save_plain(path: Path, step: int) -> None:
    torch.save(a_state(step), path)


def save_without_checksums(path: Path, step: int) -> None:
    torch.serialization.set_crc32_options(False)
    torch.save(a_state(step), path)
    torch.serialization.set_crc32_options(True)


def load_plain(path: Path, step: int) -> None:
    expect(torch.load(path, weights_only=True), a_state(step))


def save_dcp(path: Path, step: int) -> None:
    dcp.save(a_state(step), checkpoint_id=path, no_dist=True)


def save_compressed(path: Path, step: int) -> None:
    from torch.distributed.checkpoint._extension import ZStandard

    writer = dcp.FileSystemWriter(path, _extensions=[ZStandard()])
    dcp.save(a_state(step), storage_writer=writer, no_dist=True)


def load_dcp(path: Path, step: int) -> None:
    wanted = a_state(step)
    state = blank(wanted)
    dcp.load(state, checkpoint_id=path, no_dist=True)
    expect(state, wanted)


def a_sharded_training(step: int, run):
    """The same with FSDP 2."""
    from torch.distributed.checkpoint.state_dict import get_state_dict
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(step)
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(4)))
    fully_shard(model, mesh=init_device_mesh("cpu", (run.ranks,)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1 / step)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)
    model(torch.ones(2, WIDTH)).sum().backward()
    optimizer.step()
    scheduler.step()
    weights, moments = get_state_dict(model, optimizer)
    return {"model": weights, "optimizer": moments, "scheduler": scheduler.state_dict(), "step": step}


def save_fsdp(path: Path, step: int) -> None:
    def work(run) -> None:
        with gloo(run):
            dcp.save(a_sharded_training(step, run), checkpoint_id=path)

    in_ranks(2, work)


def load_fsdp(path: Path, step: int) -> None:
    """Into one process that does not shard, by the keys that the metadata names."""
    state = {}
    from torch.distributed.checkpoint.format_utils import _EmptyStateDictLoadPlanner
    from torch.distributed.checkpoint.state_dict_loader import _load_state_dict

    reader = dcp.FileSystemReader(path)
    _load_state_dict(state, storage_reader=reader, planner=_EmptyStateDictLoadPlanner(), no_dist=True)
    expect(state, WHOLE["fsdp", step])


def a_language_model(step: int):
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(step)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    return LlamaForCausalLM(LlamaConfig(vocab_size=256, num_key_value_heads=2, tie_word_embeddings=False, **sizes))


def save_pretrained(path: Path, step: int, size: str) -> None:
    a_language_model(step).save_pretrained(path, max_shard_size=size)


def load_pretrained(path: Path, step: int) -> None:
    from transformers import AutoModelForCausalLM

    model, report = AutoModelForCausalLM.from_pretrained(path, output_loading_info=True)
    if report["missing_keys"] or report["unexpected_keys"]:
        raise OtherValues(str(report)[:200])
    expect(model.state_dict(), a_language_model(step).state_dict())


def save_bin(path: Path, step: int) -> None:
    from huggingface_hub import save_torch_state_dict

    path.mkdir()
    state = a_language_model(step).state_dict()
    save_torch_state_dict(state, path, max_shard_size="120KB", safe_serialization=False)
    a_language_model(step).config.save_pretrained(path)


def load_bin(path: Path, step: int) -> None:
    from huggingface_hub import load_torch_model
    from transformers import AutoConfig, LlamaForCausalLM

    model = LlamaForCausalLM(AutoConfig.from_pretrained(path))
    load_torch_model(model, path, strict=True, safe=False)
    expect(model.state_dict(), a_language_model(step).state_dict())


def save_file(path: Path, step: int) -> None:
    from safetensors.torch import save_file as save

    save(a_training(step)[0].state_dict(), path)


def load_file(path: Path, step: int) -> None:
    from safetensors.torch import load_file as load

    expect(load(path), a_training(step)[0].state_dict())


def an_accelerator():
    from accelerate import Accelerator

    return Accelerator(cpu=True)


def save_accelerate(path: Path, step: int) -> None:
    accelerator = an_accelerator()
    accelerator.prepare(*a_training(step))
    accelerator.save_state(str(path))


def load_accelerate(path: Path, step: int) -> None:
    accelerator = an_accelerator()
    model, optimizer, scheduler = accelerator.prepare(*a_training(1))
    accelerator.load_state(str(path))
    wanted = a_training(step)
    expect(accelerator.unwrap_model(model).state_dict(), wanted[0].state_dict())
    expect(optimizer.state_dict(), wanted[1].state_dict())
    expect(scheduler.scheduler.state_dict()["last_epoch"], wanted[2].state_dict()["last_epoch"])


def a_trainer(folder: Path, **options):
    from transformers import Trainer, TrainingArguments

    settings = {"use_cpu": True, "report_to": [], "disable_tqdm": True, "per_device_train_batch_size": 2, **options}
    tokens = torch.arange(8) + 1
    rows = [{"input_ids": tokens, "labels": tokens} for _ in range(64)]
    return Trainer(a_language_model(1), TrainingArguments(str(folder), **settings), train_dataset=rows)


def save_trainer(path: Path, step: int) -> None:
    """Both steps in one run; the name of the folder is the trainer's own."""
    if not path.exists():
        a_trainer(path.parent, max_steps=20, save_steps=10).train()


def load_trainer(path: Path, step: int) -> None:
    trainer = a_trainer(Path(tempfile.mkdtemp(dir=path.parent)), max_steps=step, save_strategy="no")
    trainer.train(resume_from_checkpoint=str(path))
    expect(trainer.model.state_dict(), WHOLE["trainer", step])


WHOLE: dict[tuple[str, int], object] = {}
"""What was saved, where that is known only after a load."""

CHECKPOINTS: dict[str, tuple[str, Callable[[Path, int], None], Callable[[Path, int], None]]] = {
    "plain": ("ckpt-{}.pt", save_plain, load_plain),
    "plain, no checksums": ("ckpt-{}.pt", save_without_checksums, load_plain),
    "dcp": ("step-{}", save_dcp, load_dcp),
    "dcp, compressed": ("step-{}", save_compressed, load_dcp),
    "fsdp": ("step-{}", save_fsdp, load_fsdp),
    "file": ("model-{}.safetensors", save_file, load_file),
    "pretrained": ("step-{}", partial(save_pretrained, size="120KB"), load_pretrained),
    "pretrained-one": ("step-{}", partial(save_pretrained, size="5GB"), load_pretrained),
    "bin": ("step-{}", save_bin, load_bin),
    "accelerate": ("step-{}", save_accelerate, load_accelerate),
    "trainer": ("checkpoint-{}", save_trainer, load_trainer),
}
STEPS = (10, 20)


def note_whole(name: str, root: Path) -> None:
    """Load what is not a function of the step, once, from what was saved."""
    if name == "trainer":
        from safetensors.torch import load_file as load

        WHOLE[name, 20] = load(root / "checkpoint-20" / "model.safetensors")
    elif name == "fsdp":
        from torch.distributed.checkpoint.format_utils import _EmptyStateDictLoadPlanner
        from torch.distributed.checkpoint.state_dict_loader import _load_state_dict

        state = {}
        reader = dcp.FileSystemReader(root / "step-20")
        _load_state_dict(state, storage_reader=reader, planner=_EmptyStateDictLoadPlanner(), no_dist=True)
        WHOLE[name, 20] = state


def damages(source: Path, other: Path, times: int, chance: random.Random):
    """Pairs of a kind and what does it to a copy."""
    files = [path.relative_to(source) for path in sorted(source.rglob("*")) if path.is_file()] or [Path()]
    for file in files:
        size = (source / file).stat().st_size
        if source.is_dir():
            yield f"drop {file}", lambda copy, file=file: (copy / file).unlink()
        yield f"empty {file}", lambda copy, file=file: os.truncate(copy / file, 0)
        if (other / file).is_file():
            yield f"older {file}", lambda copy, file=file: shutil.copy(other / file, copy / file)
        for length in {size - 1, *(chance.randrange(size) for _ in range(times // 2))}:
            yield f"cut {file} at {length}", lambda copy, file=file, length=length: os.truncate(copy / file, length)
        for fill in (bytes, chance.randbytes):
            what = "zero" if fill is bytes else "garbage"
            places = [
                (0, min(size, 2 * BLOCK)),
                *((chance.randrange(size), chance.choice((16, 512, BLOCK))) for _ in range(times)),
            ]
            for at, length in places:
                content = fill(min(length, size - at))
                yield f"{what} {file} at {at}+{len(content)}", partial(_write, file=file, at=at, content=content)
        for at in {BLOCK * chance.randrange(max(1, size // BLOCK)) for _ in range(times)}:
            yield f"tail {file} from {at}", partial(_write, file=file, at=at, content=bytes(size - at))
    for first, second in pairwise(files):
        yield f"exchange {first} {second}", partial(_exchange, first=first, second=second)


def _write(copy: Path, *, file: Path, at: int, content: bytes) -> None:
    with (copy / file).open("r+b") as opened:
        opened.seek(at)
        opened.write(content)


def _exchange(copy: Path, *, first: Path, second: Path) -> None:
    between = copy / "between"
    (copy / first).rename(between)
    (copy / second).rename(copy / first)
    between.rename(copy / second)


def compare(name: str, times: int, seed: int) -> Counter[tuple[str, str, str]]:
    """What became of each damage, with healthd's word and the loader's."""
    pattern, save, load = CHECKPOINTS[name]
    counts: Counter[tuple[str, str, str]] = Counter()
    root = Path(tempfile.mkdtemp(prefix=f"damaged-{name}-"))
    for step in STEPS:
        save(root / pattern.format(step), step)
    shutil.rmtree(root / "runs", ignore_errors=True)
    note_whole(name, root)
    source, other = (root / pattern.format(step) for step in reversed(STEPS))
    for kind, damage in [("nothing", lambda _: None), *damages(source, other, times, random.Random(seed))]:
        place = root / "damaged"
        shutil.rmtree(place, ignore_errors=True)
        copy = place / source.name
        place.mkdir()
        shutil.copytree(other, place / other.name) if other.is_dir() else shutil.copy(other, place)
        shutil.copytree(source, copy) if source.is_dir() else shutil.copy(source, copy)
        damage(copy)
        reason, fails = word(copy), why_it_fails(lambda path: load(path, STEPS[-1]), copy)
        said = "refused" if reason else "good"
        loads = "loads otherwise" if OtherValues.__name__ in fails else "fails" if fails else "loads"
        counts[kind.partition(" ")[0], said, loads] += 1
        if (said, loads) in {("good", "fails"), ("good", "loads otherwise"), ("refused", "loads")}:
            print(f"{name}: {kind}: {said}, {loads}: {reason or fails[:160]}", flush=True)
    shutil.rmtree(root)
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(CHECKPOINTS))
    parser.add_argument("--times", type=int, default=6)
    parser.add_argument("--seed", type=int, default=3)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for name in arguments.names:
        counts = compare(name, arguments.times, arguments.seed)
        for (kind, said, loads), count in sorted(counts.items()):
            print(f"{name}: {re.sub('^nothing$', 'undamaged', kind)}: {said}, {loads}: {count}", flush=True)
        total = Counter((said, loads) for (_, said, loads), n in counts.items() for _ in range(n))
        print(f"{name}: all: {dict(total)}", flush=True)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    main()
