"""What this machine keeps of its runs: a folder for each, and the list of them."""
