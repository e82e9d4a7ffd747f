"""
Schedules of automatic node remediation: the real loop, twice, and real agents, over a cluster where calls go wrong.

`tests.core.remediation` draws lives for the decisions alone; here every write of the loop is under test, too.
"""
