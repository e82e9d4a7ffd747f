"""Real nodes on one machine: each has its own root, processes, network and cgroups, a containerd and a kubelet."""
