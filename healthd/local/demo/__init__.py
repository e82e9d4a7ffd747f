"""`healthd demo`: a training job of its own, faults played to it, and the story of what healthd does about them."""
