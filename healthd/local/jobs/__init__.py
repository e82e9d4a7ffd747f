"""
The Job controller and the scheduler of this machine: `controller` carries out what `plan` and `schedule` decide.
"""
