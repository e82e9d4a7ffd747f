"""The reports for people: `explain` and `doctor`."""
