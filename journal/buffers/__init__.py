"""Pooled memory within a byte budget, for message bytes on their way between the socket and the disk."""

from journal.buffers.allocator import PooledAllocator
from journal.buffers.buffer import POISON, Buffer
from journal.buffers.leaks import LeakDetector, warn

__all__ = ["POISON", "Buffer", "LeakDetector", "PooledAllocator", "warn"]
