"""A module for each command: `commands/NAME.py` is `healthd NAME`, and has `add_arguments(parser)` and `run(args)`."""
