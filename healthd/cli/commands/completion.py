"""`healthd completion SHELL`: what a shell evaluates, so that Tab completes commands and options."""

from __future__ import annotations

import argparse

SHELLS = ("bash", "zsh", "fish")
_EPILOG = """\
set up, in the file that your shell reads at its start:
  eval "$(healthd completion bash)"      # ~/.bashrc
  eval "$(healthd completion zsh)"       # ~/.zshrc
  healthd completion fish | source       # ~/.config/fish/config.fish
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `healthd completion`."""
    parser.epilog = _EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("shell", choices=SHELLS)


def run(args: argparse.Namespace) -> int:
    """Print the code. Exit code 0."""
    from argcomplete.shell_integration import shellcode  # imported here: --help needs none of it

    print(shellcode(["healthd"], shell=args.shell))
    return 0
