"""The controller of all gangs: observe, decide, act, record."""
