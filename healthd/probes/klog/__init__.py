"""
The kernel log, from the kernel's ring to batches of records on the event loop.

`source_selection` opens the best of the sources. `kmsg` is the ring itself: `ring` drains it, `priority` sets the
reader's scheduling priority. The privileged `opener` may have opened it for this process (`received_fd`). Then come
`journal` and `log_file`. Each is a `log.KernelLog`. `record` parses what the kernel writes, and `pipe` stands in for
the kernel. `healthd.core.diagnosis.klog` decides what a line means.
"""
