"""
Reads the machine; nothing here judges. These packages give two kinds of facts to the agent:

- `klog` gives batches of kernel records, as they are written;
- `nvml`, `nics`, `pci`, `host` and `dcgm` have probes: objects whose `sample(now)` returns a `Sample`, all readings of
one source or why there are none.

`hang` and `usage` look at the processes of jobs: what they do, and what they have used. `pod_processes` proves that
pods have ended, and `host_root` says where the host's /proc, /sys and /dev are. The packages use `sysfs`,
`process_stat` and `errors`, and do not import each other.
"""
