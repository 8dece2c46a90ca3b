"""The guard against slow decay counts instructions per message and compares them with ``budget.json``."""
