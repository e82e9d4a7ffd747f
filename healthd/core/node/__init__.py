"""What follows from the findings of a node: quarantine within the budget, conditions, what is published."""
