"""The logs that their force policies want flushed now, found without a look at each of ten thousand."""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from heapq import heapify, heappop, heappush
from operator import attrgetter

from journal.log.force_policy import ForcePolicy
from journal.log.message_store import MessageStore

_policy = lru_cache(maxsize=1024)(ForcePolicy.of)
_number = attrgetter("number")

LOOKS_AT_ONCE = 1024
"""Most stores that a call finds by their age, 3 µs each: ten thousand may become due at once."""


class DueStores:
    """The due ones of the ``dirty`` stores: by their messages, then they are in ``filled``, or by their age.

    Both sets are the engine's. Each store that has been seen in ``dirty`` is in the heap once, at a time before which
    its age cannot make it due. It stays there when it is flushed, because later messages are younger; where a policy
    changes, :meth:`look_again` has it taken out. The store is looked at again only when that time has come.
    """

    def __init__(self, dirty: set[MessageStore], filled: set[MessageStore]) -> None:
        self._dirty = dirty
        self._filled = filled
        self._heap: list[tuple[int, int, MessageStore]] = []
        self._waiting: set[MessageStore] = set()
        """The stores in the heap."""
        self._begun: set[MessageStore] = set()
        """The stores that are being flushed: they are not looked at until that is over."""

    def due(self, now: int) -> list[MessageStore]:
        """Return the stores to flush, by number, because a set has no order and a replayed history needs one.

        A store that is due and cannot be flushed yet, because nothing of it is forced, is due again at the next call.
        So are the stores beyond :data:`LOOKS_AT_ONCE` whose time has come.
        """
        heap, waiting = self._heap, self._waiting
        left = LOOKS_AT_ONCE
        while left and heap and heap[0][0] <= now:
            waiting.discard(heappop(heap)[2])
            left -= 1
        found = (self._filled & self._dirty) - self._begun
        self._filled.clear()
        for store in self._dirty - waiting - self._begun:
            oldest = store.oldest_unflushed_time
            if oldest is None:
                self._dirty.discard(store)
                continue
            policy = _policy(store.settings)
            if policy.due(store.unflushed_messages, now - oldest):
                found.add(store)
            else:
                heappush(heap, (oldest + policy.interval, store.number, store))
                waiting.add(store)
        return sorted(found, key=_number)

    def begun(self, store: MessageStore) -> None:
        """Note that a flush of all flushable messages of this store has begun."""
        self._dirty.discard(store)
        self._begun.add(store)

    def flushed(self, store: MessageStore) -> None:
        """Note that a flush of this store is over; check whether messages that came meanwhile need the next one."""
        self._begun.discard(store)
        self._filled.discard(store)
        if store.unflushed_messages:
            self._dirty.add(store)
            if store.unflushed_messages >= store.settings.force_messages:
                self._filled.add(store)

    def look_again(self, stores: Collection[MessageStore]) -> None:
        """Find out anew when these stores are due, because their settings have changed."""
        if not self._waiting.isdisjoint(stores):
            self._waiting.difference_update(stores)
            self._heap = [entry for entry in self._heap if entry[2] in self._waiting]
            heapify(self._heap)

    def forget(self, stores: Collection[MessageStore]) -> None:
        """Remove stores for good."""
        self.look_again(stores)
        for known in (self._dirty, self._filled, self._begun):
            known.difference_update(stores)
