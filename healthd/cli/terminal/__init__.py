"""Standard input, output and error: what is printed, and how it is made harmless."""
