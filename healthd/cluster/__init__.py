"""The interface to Kubernetes that agent and controller use, and its implementations."""
