"""The port that agent and controller speak, and its implementations."""
