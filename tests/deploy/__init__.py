"""The manifests: what they say, and what the API server makes of them."""
