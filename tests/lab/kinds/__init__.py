"""
The real controllers of gang kinds beside a control plane, a module each.

They run as administrators outside of the cluster, so their own RBAC, Services and Deployments are left out. Everything
that a user of their kinds can notice is there: defaults, webhooks, what may not be edited, retries.

`controllers.py` has the table of them, `gangs.py` a gang of each kind. To add a controller: its pins in `tests/lab/go`,
its programs in `tests/lab/build.py`, a module here, a row in both tables.

Cold builds on two cores, in this order and each on top of those before it; other work on the machine at the same time,
so the seconds of processor time count:

| program | user + system, seconds |
|---|---|
| jobset, with the standard library and the client libraries that all of `go/gangs` share | 234 |
| training-operator | 22 |
| mpi-operator | 91 |
| trainer | 16 |
| kuberay | 18 |
| leaderworkerset | 7 |
| appwrapper | 6 |
| volcano-controllers (libraries of its own) | 197 |
| volcano-scheduler | 70 |
| kueue (libraries of its own) | 327 |

Resident with one gang: jobset 56 MB, trainer 46, kuberay 50, leaderworkerset 57. The others were not measured.

The programs of `go/gangs` are built with the newest client libraries that one of them asks for, newer than most of
their releases have.
"""
