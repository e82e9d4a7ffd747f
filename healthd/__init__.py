"""healthd keeps large GPU training jobs running when hardware breaks."""

__version__ = "0.1.0"
