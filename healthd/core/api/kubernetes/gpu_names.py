"""Names on a Node that speak of its NVIDIA GPUs: resources of the device plugin, labels of GPU feature discovery."""

from __future__ import annotations

GPU_RESOURCE = "nvidia.com/gpu"
"""GPUs, or shares of them where `LABEL_GPU_REPLICAS` says so."""
MIG_RESOURCES = "nvidia.com/mig-"
"""Prefix of the resources that are slices of GPUs."""
GPU_PREFIXES = (GPU_RESOURCE, MIG_RESOURCES)
"""Of all resources that are GPUs or parts of them."""
LABEL_GPU_COUNT = "nvidia.com/gpu.count"
LABEL_GPU_PRODUCT = "nvidia.com/gpu.product"
LABEL_GPU_REPLICAS = "nvidia.com/gpu.replicas"
"""Shares of each GPU that the device plugin offers."""
