"""The commands of `kubectl healthd`: they are about a cluster, and most of them also about a run of `healthd run`."""
