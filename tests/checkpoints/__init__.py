"""Checkpoints: steps, formats, and the choice between them."""
