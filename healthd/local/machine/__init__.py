"""This machine in the place of a cluster: its slots are the nodes, its kernel log the evidence of faults."""
