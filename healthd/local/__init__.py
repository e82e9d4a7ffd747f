"""The parts of Kubernetes that a single machine lacks: slots as nodes, a Job controller, processes as pods."""
