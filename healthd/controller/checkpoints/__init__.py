"""How the controller reads the checkpoints of gangs: where they are mounted, by a pod in the gang's namespace, in the
background."""
