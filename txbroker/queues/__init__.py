"""Queues: how they are declared, how messages find them, and which session has which message (decision 0055)."""
