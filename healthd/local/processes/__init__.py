"""
The kubelet of this machine: pods that are bound to its slots become processes, and their endings become proofs.

`runner` drives it and `pods` decides; `supervise` speaks to the `shim` that each rank runs under; `marks` finds what a
killed shim left behind; `output` shows what the ranks say.
"""
