"""The consequences of a node's findings: quarantine within the budget, node conditions, the published status."""
