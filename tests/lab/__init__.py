"""
A real Kubernetes on this machine, for tests and for people: `python -m tests.lab --help`.

The control plane is made of the upstream programs, the nodes are simulated by kwok or real kubelets. Nothing is
downloaded ready-made: the programs are built once from Go modules (`tests.lab.build`).
"""
