"""Whole scenarios on real nodes: the shipped manifests, real kubelets and containers, the machine's own kernel log."""
