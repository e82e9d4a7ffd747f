"""What the pages promise is tried."""
