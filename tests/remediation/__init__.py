"""The shipped hands against the real definitions of the kinds that they write."""
