"""A status of this machine for a person from one sample, and active checks of a machine on which nothing runs."""
