"""Kinds that others define: those of Kubernetes itself, and those of the controllers of gangs."""
