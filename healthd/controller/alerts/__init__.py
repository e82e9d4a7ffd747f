"""Alert people: what the cluster's objects show becomes incidents, and incidents become messages."""
