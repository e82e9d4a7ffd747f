"""The recovery of one gang: one fault, one restart. `decide` is the entry point."""
