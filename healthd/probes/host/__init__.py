"""
The machine around the GPUs. One module per probe: `machine` (memory, swapping, the clock by `kernel_clock`), `disks`
with their file systems, `edac` (memory errors), `thermal` and `services` (NVIDIA's helpers).
"""
