"""The CustomResourceDefinitions of healthd's own kinds."""

from healthd.cluster.crds.definitions import as_yaml, definitions

__all__ = ["as_yaml", "definitions"]
