"""Makes the decision table."""
