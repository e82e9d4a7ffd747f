"""What a machine without Kubernetes lacks: slots as nodes, a Job controller, processes as pods."""
