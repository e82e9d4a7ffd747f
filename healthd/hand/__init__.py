"""healthd's own hand on a node: resets its GPUs or reboots it, from a privileged pod (`healthd hand`)."""
