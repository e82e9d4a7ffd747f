"""Which checkpoint is the newest that will load, and why the newer ones will not."""
