"""What one node cannot know of itself: passes over all nodes, once a minute, that report and take no node out."""
