"""What people read: `explain` and `doctor`."""
