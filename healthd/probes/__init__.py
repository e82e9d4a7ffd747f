"""One module per source. A probe reads facts and judges nothing."""
