"""The newest checkpoint that loads, and why the newer ones do not."""
