"""Scenarios on a real control plane: agents, controllers and gangs, from the fault to the end, whatever happens."""
