"""Transactions: their states and table, judging, staged frames, commits, outcomes and their archive."""
