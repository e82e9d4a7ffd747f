"""On which nodes a gang goes on: spares, replacements, and what other detectors say of a node."""
