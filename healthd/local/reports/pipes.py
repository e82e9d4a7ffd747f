"""
Commands that hide how a rank ended: a shell reports only the exit code of the last part of a pipe. Pure.

`python train.py | tee log` exits with 0 although the training was killed, and a rank that exits with 0 is done. Only
visible text is checked: the words of the command, and a script that they name.
"""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import PurePath

SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "ash"})
PASS_ON = frozenset({"env", "nohup", "exec", "nice", "setsid", "stdbuf", "ionice", "time"})
"""Words that run the command after their own options."""
CAREFUL = re.compile(r"pipefail|PIPESTATUS|pipestatus")
LONGEST_SCRIPT = 256 * 1024
_SHEBANG = re.compile(r"#!\s*(\S+)(.*)")
_ENDS = frozenset({";", "&&", "||", "&", ";;", "(", ")", "{", "}"})
_PIPES = frozenset({"|", "|&"})


def hidden_by(command: Sequence[str], read: Callable[[str], str]) -> str:
    """
    What hides the exit code of *command*, such as `| tee`. Empty when nothing visible does.

    *read* returns the text of a file, empty when the file does not exist.
    """
    words = _without_wrappers(command)
    if not words:
        return ""
    if PurePath(words[0]).name not in SHELLS:
        script = read(words[0])
        shebang = _SHEBANG.match(script)
        is_shell = shebang and {PurePath(word).name for word in shebang[0][2:].split()} & SHELLS
        return _pipe_in(script) if is_shell else ""
    script, is_text = _script_of(words[1:])
    if not script or CAREFUL.search(" ".join(words[1:])):
        return ""
    return _pipe_in(script if is_text else read(script))


def _without_wrappers(command: Sequence[str]) -> list[str]:
    """The command that runs in the end: without `env NAME=value`, `nice -n 5` and similar words."""
    words = list(command)
    while words and PurePath(words[0]).name in PASS_ON:
        words = words[1:]
        while words and (words[0].startswith("-") or "=" in words[0] or words[0].isdecimal()):
            words = words[1:]
    return words


def _script_of(words: Sequence[str]) -> tuple[str, bool]:
    """What a shell with these arguments runs: the text after `-c`, or the name of a file."""
    is_text = False
    rest = iter(words)
    for word in rest:
        if not word.startswith(("-", "+")) or word in ("-", "--"):
            return word, is_text
        is_text = is_text or (not word.startswith("--") and "c" in word[1:])
        if word.endswith("o") and not word.startswith("--"):
            next(rest, "")
    return "", is_text


def _pipe_in(script: str) -> str:
    if not script or CAREFUL.search(script):
        return ""
    words = _words(script)
    for before, word in itertools.pairwise(words):
        if before in _PIPES and PurePath(word).name == "tee":
            return f"{before} {word}"
    while words and words[-1] in _ENDS:
        words.pop()
    last = max((at for at, word in enumerate(words) if word in _ENDS), default=-1)
    piped = [at for at, word in enumerate(words) if at > last and word in _PIPES]
    return " ".join(words[piped[-1] : piped[-1] + 2]) if piped else ""


def _words(script: str) -> list[str]:
    """The words as a shell splits them, roughly: each line ends a command. Text that cannot be split is left out."""
    lexer = shlex.shlex(script.replace("\\\n", " ").replace("\n", "\n; "), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    found: list[str] = []
    try:
        for word in lexer:
            found.append(word)  # noqa: PERF402 - what came before a failure counts
    except ValueError:  # a quote without an end, perhaps in a here-document
        return found
    return found
