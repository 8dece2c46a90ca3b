"""The guard against slow rot: instructions per message, counted, against a budget kept in ``budget.json``."""
