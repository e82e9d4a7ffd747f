"""All metric names, the log setup, Kubernetes Events, and the HTTP endpoints."""
