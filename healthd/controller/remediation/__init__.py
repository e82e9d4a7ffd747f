"""Takes nodes through their life after a fault: observe, decide (`healthd.core.remediation`), act, record."""
