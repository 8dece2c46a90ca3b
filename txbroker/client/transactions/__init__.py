"""Transactions of a client: their contents, decision, numbers, and the calls of PEP 249."""
