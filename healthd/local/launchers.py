"""
Launchers in the command of `healthd run`: programs that start ranks themselves, although healthd has started them.

With N ranks, each rank would start a gang of its own, and all gangs would save in one folder. With one rank, a
launcher is a gang within a slot. That works when the launcher sets the variables of its ranks. It fails when its ranks
inherit RANK=0 of that one rank.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

_PROGRAMS = frozenset({"torchrun", "deepspeed", "composer", "horovodrun", "colossalai"})
"""Each of them sets RANK and WORLD_SIZE of its ranks, or variables with other names."""
_WITH_WORD = frozenset({("accelerate", "launch"), ("fabric", "run"), ("lightning", "run")})
_BARE = frozenset({"mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prun", "srun", "jsrun", "aprun"})
"""Their ranks inherit RANK and WORLD_SIZE from the process that started them."""
_MODULES = frozenset(
    {
        "torch.distributed.run",
        "torch.distributed.launch",
        "torch.distributed.launcher",
        "accelerate.commands.launch",
        "deepspeed.launcher.runner",
        "deepspeed.launcher.launch",
        "composer.cli.launcher",
        "horovod.runner.launch",
        "paddle.distributed.launch",
    }
)
_PYTHON = re.compile(r"python[\d.]*|pypy[\d.]*")
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh"})
_BEFORE = frozenset(
    {"env", "nohup", "nice", "ionice", "chrt", "time", "timeout", "stdbuf", "unbuffer", "setsid", "numactl", "taskset"}
    | {"exec", "command", "eval", "sudo", "xvfb-run", "nsys", "ncu"}
    | {"uv", "uvx", "poetry", "pipenv", "pixi", "hatch", "pdm", "rye", "conda", "mamba", "micromamba", "run"}
)
"""They run the command that follows, after options."""
_VALUE = re.compile(r"-.*|[\w.]*=.*|[\d.,:\-]+[smhd]?")
_ENDS = frozenset({";", "&&", "||", "|", "&", "(", ")", "{", "}", "then", "do", "else", "!", "\n"})
_LARGEST_SCRIPT = 65_536


class Launcher(NamedTuple):
    """A launcher in a command."""

    name: str
    """The words in the command."""
    sets_ranks: bool
    """It sets RANK and WORLD_SIZE, or its own variables, for its ranks."""
    script: str
    """The command that it starts, for one rank. Empty when it cannot be read from the words."""


def find_launcher(command: Sequence[str], here: Path | None) -> Launcher | None:
    """
    The launcher that *command* starts, by its words or in a shell script. None when no launcher is visible.

    Script paths are relative to *here*. None: scripts are not read.
    """
    words = list(command)
    while words:
        name = Path(words[0]).name
        if found := _launcher(name, words):
            return found
        if _PYTHON.fullmatch(name):
            return _of_python(words[1:], here)
        if name in _SHELLS:
            return _of_shell(words[1:], here)
        if name not in _BEFORE:
            return _of_script(words[0], here)
        words = words[1:]
        while words and _VALUE.fullmatch(words[0]):
            words = words[1:]
    return None


def starts_ranks(command: Sequence[str]) -> bool:
    """Whether a process with this command is a launcher, or a shell or another program that only runs one."""
    name = Path(command[0]).name if command else ""
    return name in (_SHELLS | _BEFORE) or find_launcher(command, None) is not None


def _launcher(name: str, words: Sequence[str]) -> Launcher | None:
    pair = (name, words[1] if len(words) > 1 else "")
    if name in _PROGRAMS:
        return Launcher(name, True, _script(words[1:]))
    if pair in _WITH_WORD:
        return Launcher(" ".join(pair), True, _script(words[2:]))
    if name in _BARE:
        return Launcher(name, False, _script(words[1:]))
    return None


def _of_python(words: Sequence[str], here: Path | None) -> Launcher | None:
    """`python -m MODULE`, or the path of a launcher as a script."""
    for at, word in enumerate(words):
        if word == "-m":
            module = words[at + 1] if at + 1 < len(words) else ""
            return Launcher(f"python -m {module}", True, _script(words[at + 2 :])) if module in _MODULES else None
        if not word.startswith("-"):
            return find_launcher(words[at:], here) if Path(word).name in {*_PROGRAMS, "accelerate"} else None
    return None


def _of_shell(words: Sequence[str], here: Path | None) -> Launcher | None:
    """`sh -c TEXT`, or `sh FILE`."""
    for word, following in pairwise([*words, ""]):
        if re.fullmatch(r"-\w*c", word):
            return _of_text(following, here)
        if not word.startswith("-"):
            return _of_file(here / word) if here else None
    return None


def _of_script(word: str, here: Path | None) -> Launcher | None:
    """A file with a first line (`#!`) that runs a shell."""
    if here is None:
        return None
    path = str(here / word) if "/" in word else shutil.which(word)
    return _of_file(Path(path), only_shell=True) if path else None


def _of_file(path: Path, *, only_shell: bool = False) -> Launcher | None:
    """What a shell would run by that file. Other files that it names are not read."""
    try:
        with path.open("rb") as file:
            raw = file.read(_LARGEST_SCRIPT)
    except OSError:
        return None
    first = raw.partition(b"\n")[0].decode(errors="replace")
    if only_shell and not (first.startswith("#!") and _SHELLS & set(re.findall(r"\w+", first))):
        return None
    return _of_text(raw.decode(errors="replace"), None)


def _of_text(text: str, here: Path | None) -> Launcher | None:
    """The first launcher at a position where a shell expects a command."""
    for line in text.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|(){}")
        lexer.whitespace_split = True
        try:
            words = list(lexer)
        except ValueError:  # a quotation over several lines
            words = line.split()
        command: list[str] = []
        for word in [*words, ";"]:
            if word not in _ENDS and set(word) - set(";&|(){}"):
                command.append(word)
                continue
            if found := _of_words(command, here):
                return found
            command = []
    return None


def _of_words(words: list[str], here: Path | None) -> Launcher | None:
    while words and re.fullmatch(r"\w+=.*", words[0]):
        words = words[1:]
    is_text = words and (Path(words[0]).name in (_SHELLS | _BEFORE) or _is_known(words))
    return find_launcher(words, here) if is_text else None


def _is_known(words: Sequence[str]) -> bool:
    name = Path(words[0]).name
    return _PYTHON.fullmatch(name) is not None or _launcher(name, words) is not None


def _script(words: Sequence[str]) -> str:
    """The command from the script or module on, as one rank would run it. Empty: its shell has to fill in variables."""
    if any("$" in word for word in words):
        return ""
    for at, word in enumerate(words):
        if word.endswith(".py"):
            return shlex.join(["python", *words[at:]])
        if word in {"-m", "--module"} and at + 1 < len(words):
            return shlex.join(["python", "-m", *words[at + 1 :]])
        if _PYTHON.fullmatch(Path(word).name):
            return shlex.join(words[at:])
    return ""


def why_not_launch(launcher: Launcher, nproc: int, checkpoint: Path, options: Sequence[str] = ()) -> str:
    """
    Why *launcher* must not be started *nproc* times, and what to do, with the other *options* that the user gave. Empty
    when it may be started.
    """
    if nproc == 1 and launcher.sets_ranks:
        return ""
    words = ["healthd", "run", "--nproc", str(nproc) if nproc > 1 else "N", "--checkpoint", str(checkpoint), *options]
    right = f"{shlex.join(words)} -- {launcher.script or 'python SCRIPT'}"
    what = (
        f"each of the {nproc} ranks would start a gang of its own, and all would save in {checkpoint}"
        if nproc > 1
        else "its ranks would all inherit RANK=0 and WORLD_SIZE=1, and train without each other"
    )
    count = "" if nproc > 1 else ", with N ranks"
    return (
        f"{launcher.name} starts ranks, and healthd does so itself: {what}. Run the script itself{count}: "
        f"`{right}` (each rank has RANK, WORLD_SIZE, LOCAL_RANK and MASTER_ADDR). "
        "--allow-launcher starts it all the same"
    )


def what_to_know(launcher: Launcher) -> str:
    """What differs when one rank is a launcher."""
    return (
        f"{launcher.name} is one rank to healthd: it sees the GPUs of one slot. Hangs and slow ones of its ranks are "
        "seen, a fault of them when it ends. Restarts of its own (--max-restarts) choose no checkpoint: leave them at 0"
    )
