"""What faults cost: every GPU-second of a gang is productive, lost to a cause and a phase, unknown, or not ours."""
