"""
The GPUs as NVML sees them. A sick driver holds its caller for ever, so only child processes ask it.

`inventory` asks one once for the list of GPUs, before the agent begins. `process` keeps another that asks for ever, and
`health` makes looks of what it says. What runs in the children lies in `child`, and nothing else loads NVML's library.
"""
