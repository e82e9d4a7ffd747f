"""What a command is about: a run on this machine, or a Kubernetes cluster and a gang in it."""
