"""The folder `docs/findings/`, written from the rules."""
