"""The phases of one recovery. `decide` in the folder above leads from one to the next."""
