"""
The kubelet of this machine: pods that are bound to its slots become processes, and the ends of processes become
proofs.

`runner` drives it and `pods` decides. `supervise` talks to the `shim` that each rank runs under. `marks` finds the
processes that a killed shim left behind. `output` shows the output of the ranks.
"""
