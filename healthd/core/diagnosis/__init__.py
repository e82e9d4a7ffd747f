"""What the machine says, judged: kernel lines, Xids and readings become findings."""
