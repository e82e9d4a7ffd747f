"""One look at this machine for a person, and active checks of a machine on which nothing runs."""
