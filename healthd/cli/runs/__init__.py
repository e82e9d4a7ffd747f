"""What the commands that concern a run on this machine share: options, status, the live picture."""
