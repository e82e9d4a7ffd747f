"""
Hangs of a run on this machine.

`watch` samples the ranks and sees the silence, `evidence` asks who holds up the others, `record` is what is kept of it.
"""
