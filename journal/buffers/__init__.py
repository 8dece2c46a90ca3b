"""Pooled memory within a byte budget: where message bytes live between the socket and the disk."""

from journal.buffers.budget import BudgetAllocator, Buffer

__all__ = ["BudgetAllocator", "Buffer"]
