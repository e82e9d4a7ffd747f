"""The rules about the ports of NICs: InfiniBand, RoCE, EFA and Ethernet."""
