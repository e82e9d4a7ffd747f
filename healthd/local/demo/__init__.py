"""`healthd demo`: a training job, injected faults, and a report of what healthd does about them."""
