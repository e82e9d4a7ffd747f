"""
What every `healthd.cluster.port.Cluster` does, stated through the port alone.

The same tests run against each implementation that `conftest` offers. Objects are valid for a real API server, names
are unique to each test, and what a server does in its own time (collecting dependents) is waited for.
"""
