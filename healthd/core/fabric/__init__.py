"""The ports of one rail, compared over all nodes."""
