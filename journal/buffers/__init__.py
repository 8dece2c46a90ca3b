"""Pooled memory within a byte budget: where message bytes live between the socket and the disk."""
