"""What an allocator gives out and buffers give back: blocks, from a cache for each thread or from the arena of all."""

from __future__ import annotations

from collections.abc import Callable
from threading import current_thread, local
from typing import Any

from journal.buffers.arena import Arena, Block
from journal.buffers.leaks import LeakDetector
from journal.buffers.thread_cache import ThreadCache


class _Caches(local):
    """The cache of the thread that looks: ``blocks`` are its stacks."""

    def __init__(self, caches: list[ThreadCache]) -> None:
        cache = ThreadCache(current_thread())
        self.blocks = cache.blocks
        caches.append(cache)


class Pool:
    """The arena and the caches of one allocator. With ``poison`` memory is filled with 0xDE when it is released.

    ``leaks`` watches for buffers that are never released.
    """

    def __init__(self, budget: int, poison: bool, leaks: LeakDetector | None) -> None:
        self.poison = poison
        self.leaks = leaks
        self.arena = Arena(budget)
        self.all_caches: list[ThreadCache] = []
        self.caches = _Caches(self.all_caches)

    def take(self, size: int, kind: Callable[..., Any]) -> Block | None:
        """A block from the arena, of which buffers of ``kind`` are made; None if there is none."""
        arena = self.arena
        with arena.lock:
            block = arena.take(size, kind)
            if block is None:
                self.empty_caches()
                block = arena.take(size, kind)
        return block

    def give_back(self, block: Block) -> None:
        """Take a block for which the thread's cache has no room."""
        arena = self.arena
        with arena.lock:
            arena.give(block)

    def empty_caches(self) -> None:
        """Have the arena take all that caches hold. Its lock is held by the caller."""
        for cache in self.all_caches:
            for block in cache.drain():
                self.arena.give(block)

    def trim(self) -> None:
        """Have the caches give to the arena what no thread has needed since the last call, and the arena to the system.

        Of threads that have ended the caches give everything.
        """
        arena = self.arena
        with arena.lock:
            for cache in self.all_caches.copy():
                ended = not cache.thread.is_alive()
                for block in cache.drain() if ended else cache.trim():
                    arena.give(block)
                if ended:
                    self.all_caches.remove(cache)
            arena.trim()
