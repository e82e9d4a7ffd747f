"""
The kernel log, from the kernel's ring to batches of records on the event loop.

`which_source` opens the best of the sources: `kmsg` is the ring itself (`ring` drains it, `urgency` says how eagerly),
which the privileged `opener` may have handed over to us (`handed`); then come `journal` and `log_file`. Each answers as
a `log.KernelLog`. `record` parses what the kernel writes, and `pipe` stands in for the kernel. What a line means is the
business of `healthd.core.diagnosis.klog`.
"""
