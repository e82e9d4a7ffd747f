"""What `healthd doctor` reads of a cluster before it judges."""
