"""Print `deploy/crds.yaml`."""

import sys

from healthd.cluster.crds import as_yaml

sys.stdout.write(as_yaml())
