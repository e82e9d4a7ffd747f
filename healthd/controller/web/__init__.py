"""The live page: what it shows, to whom, and the server that sends it. Read-only."""
