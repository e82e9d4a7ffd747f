"""This machine, as the commands that read its devices need it: its probes, the process of an agent, its page."""
