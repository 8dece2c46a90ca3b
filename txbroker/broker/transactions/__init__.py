"""Transactions of sessions: what their requests carry, how they are decided, and what becomes of forgotten ones."""
