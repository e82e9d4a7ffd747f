"""
The GPUs as NVML sees them. A sick driver blocks its caller for ever, so only child processes call NVML.

`inventory` starts one child once for the list of GPUs, before the agent begins. `process` keeps another one that calls
NVML for ever, and `health` makes samples of its output. The programs of the children are in `child`. Nothing else loads
NVML's library.
"""
