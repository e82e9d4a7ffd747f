"""The agent of one node: observe, judge, publish, quarantine."""
