"""Models of boosted trees."""
