"""
A module for each command: `NAME.py`, here or in `cluster/`, is `healthd NAME`, and has `add_arguments(parser)` and
`run(args)`.
"""
