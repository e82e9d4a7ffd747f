"""
The ports that gangs communicate through, as /sys shows them: which there are, whether they are up, and what they count.

`rdma` lists InfiniBand, RoCE and EFA ports, `infiniband` reads their states, `rdma_counters` their counters. `netdevs`
lists network interfaces, `ethernet` reads their states and counters, those of drivers by the ioctl of `ethtool`.
`counter_files` reads a counter again and again.
"""
