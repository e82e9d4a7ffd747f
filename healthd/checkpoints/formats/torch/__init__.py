"""The files in which programs of PyTorch keep tensors: archives, distributed folders, safetensors."""
