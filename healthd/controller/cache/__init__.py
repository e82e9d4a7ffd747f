"""The cache that the controller decides by: watches, and what they show, indexed by gang."""
