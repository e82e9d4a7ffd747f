"""
What reads the machine; nothing here judges. Two kinds of facts leave these rooms, and the agent takes both:

- `klog` gives batches of kernel records, as they are written;
- `nvml`, `nics`, `pci`, `host` and `dcgm` have probes: objects whose `look(now)` answers a `Look`, all readings of one
  source or why there are none.

`pod_processes` proves that pods have ended. `sysfs` and `errors` serve every room; the rooms do not know each other.
"""
