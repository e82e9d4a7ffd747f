"""Alert services, stood in for by servers of these tests that behave badly."""
