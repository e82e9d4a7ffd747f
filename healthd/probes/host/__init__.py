"""
The machine around the GPUs, a probe in each module: `machine` (memory, swapping, the clock by `kernel_clock`), `disks`
with their file systems, `edac` (errors of memory), `thermal` and `services` (NVIDIA's helpers).
"""
