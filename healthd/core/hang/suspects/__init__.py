"""Who holds up a gang that hangs: what is known of each rank, and the vote over it."""
