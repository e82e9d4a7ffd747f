"""
What the ranks of a gang that makes no progress are doing, asked once: states of processes, stacks, dumps, log lines.

Everything here reads what users' processes wrote or chose. Each module limits bytes, entries and time, and returns
records of `healthd.core.hang.suspects.evidence`. Nothing here signals or stops a process, except that py-spy may pause
one.
"""
