"""What kubectl runs at each Tab after `kubectl healthd`: the program `kubectl_complete-healthd`."""

from __future__ import annotations

import argparse
import io
import os
import shlex
from collections.abc import Sequence

FILES, NO_FILES = 0, 4
"""Directives of Cobra: whether the shell offers files where there is nothing else."""
TAKE_A_FILE = frozenset({"--checked", "--config", "--hands", "--kubeconfig", "--state"})
"""Options after which it does."""


def answer(parser: argparse.ArgumentParser, words: Sequence[str]) -> str:
    """
    The answer to kubectl: lines of `WORD<tab>WHAT IT IS`, then `:` with a directive.

    *words* are those after `kubectl healthd`; the last one is unfinished, or empty. *parser* has the arguments of the
    command among them. Sets variables of this process, which argcomplete reads.
    """
    *before, unfinished = words or [""]
    directive = FILES if before and before[-1] in TAKE_A_FILE else NO_FILES
    if unfinished and shlex.quote(unfinished) != unfinished:
        return f":{directive}\n"  # no word of healthd's needs quotes
    offered = _offered(parser, f"{shlex.join(['healthd', *before])} {unfinished}")
    return "".join(f"{line}\n" for line in (*offered, f":{directive}"))


def _offered(parser: argparse.ArgumentParser, line: str) -> list[str]:
    from argcomplete.completers import SuppressCompleter  # imported here: only a shell that completes needs them
    from argcomplete.finders import CompletionFinder

    os.environ.update(
        _ARGCOMPLETE="1",
        _ARGCOMPLETE_IFS="\n",
        _ARGCOMPLETE_DFS="\t",
        _ARGCOMPLETE_SUPPRESS_SPACE="1",
        COMP_LINE=line,
        COMP_POINT=str(len(line)),
    )
    found = io.StringIO()
    CompletionFinder()(
        parser,
        always_complete_options=False,
        exit_method=lambda _: None,
        output_stream=found,
        default_completer=SuppressCompleter(),
    )
    return sorted(filter(None, (each.rstrip() for each in found.getvalue().split("\n"))))
