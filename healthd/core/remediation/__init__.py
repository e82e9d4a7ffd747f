"""What is done to a node that is out of service, and what it takes to bring it back."""
