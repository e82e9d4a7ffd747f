"""How often machines fail, which of them fail too often, and how many spares that takes."""
