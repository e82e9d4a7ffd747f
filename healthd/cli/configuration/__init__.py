"""The configuration file: its keys, how it is read and checked, and its reference."""
