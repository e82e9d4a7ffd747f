"""The rules about GPUs: what NVML and DCGM report of them."""
