"""Commits that are too large for one turn: applied to their logs in slices, then shown in one step."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from journal.errors import MemoryExhausted
from journal.log.message_store import MessageStore
from journal.transaction_states import TransactionNumber
from journal.transactions.commit_application import SlicedApply
from journal.wal.group import Deliver


class LargeCommits:
    """Large commits, oldest first; ``current`` is the one that is being applied to its logs.

    ``promised`` are the partitions whose next offsets are theirs: nothing else may be appended there before.
    """

    def __init__(self) -> None:
        self.current: SlicedApply | None = None
        self.promised: set[int] = set()
        self._behind: deque[SlicedApply] = deque()
        self._hidden: deque[tuple[SlicedApply, dict[MessageStore, int]]] = deque()
        """Commits that are in all their logs and may not be forced yet, with the ends of these logs."""

    def put(self, commit: SlicedApply) -> None:
        """Add a commit, which must be for other partitions."""
        numbers = {store.number for store in commit.stores}
        assert self.promised.isdisjoint(numbers), "two commits for the same offsets"
        self.promised |= numbers
        if self.current is None:
            self.current = commit
        else:
            self._behind.append(commit)

    def moves(self, group: str) -> bool:
        """Return whether one of them has moved that consumer group."""
        return any(group in commit.groups for commit in self._all())

    def ends(self, number: TransactionNumber) -> bool:
        """Return whether one of them is the commit of that transaction."""
        return any(commit.number == number for commit in self._all())

    def _all(self) -> Iterator[SlicedApply]:
        if self.current is not None:
            yield self.current
        yield from self._behind

    @property
    def last(self) -> SlicedApply:
        """The one after which all are in their logs; there must be one."""
        assert self.current is not None
        return self._behind[-1] if self._behind else self.current

    @property
    def are_shown(self) -> bool:
        """Whether all of them are in their logs and can be read."""
        return self.current is None and not self._hidden

    def step(self, forced_lsn: int) -> bool:
        """Apply the next slice of the current commit; return whether it is now in all its logs."""
        commit = self.current
        assert commit is not None
        if not commit.step(forced_lsn):
            return False
        self.current = self._behind.popleft() if self._behind else None
        self.promised.difference_update(store.number for store in commit.stores)
        # Their present ends: later appends wait for a later force.
        self._hidden.append((commit, {store: store.end_offset for store in commit.stores}))
        return True

    def finish(self, step: Callable[[], object], flush: Callable[[], object]) -> None:
        """Have ``step`` apply slices until no commit is left; ``flush`` runs the flushes that have been wanted so far.

        Raises :class:`MemoryExhausted` if a flush has not made room for the next add.
        """
        stuck = False
        while (commit := self.current) is not None:
            done = commit.progress
            step()
            no_progress = commit.short_of_memory and commit.progress == done
            if stuck and no_progress:
                raise MemoryExhausted(
                    f"transaction {commit.number} is committed, but its messages do not fit into memory, though all "
                    "else has been flushed. It stays committed: start again with a larger pool_bytes"
                )
            stuck = no_progress
            if commit.short_of_memory:
                flush()

    def show(self, forced_lsn: int, ends: dict[MessageStore, int]) -> list[tuple[Deliver, Any]]:
        """Add the ends of commits that are forced by now to ``ends``; return the answers that waited for that."""
        waiters: list[tuple[Deliver, Any]] = []
        while self._hidden and self._hidden[0][0].lsn <= forced_lsn:
            commit, applied = self._hidden.popleft()
            for store, end in applied.items():
                ends[store] = max(end, ends.get(store, store.high_watermark))
            waiters += commit.waiters
        return waiters
