"""The checkpoints of gangs as the controller reads them: where they are mounted, by a pod beside them, in the
background."""
