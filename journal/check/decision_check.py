"""The check of the decisions about Spark's writes against the ends of their branches: decided ones are committed, no
others.

``docs/spark.md`` has the protocol. A decision lists the branches of a write, prepared transactions, that are committed;
any process may end them so, and none otherwise. Everything is judged as of the newest checkpoint. Memory grows with the
decisions that are kept, by 150 bytes for each branch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec

from journal.errors import TxBrokerError
from journal.formats import frame, spark_decision
from journal.formats.checkpoint import Checkpoint
from journal.formats.frame import HEADER_BYTES
from journal.formats.spark_decision import FORMAT_ID, TOPIC, Decided, named_by
from journal.formats.store_state import StoreState
from journal.interfaces import IFilesystem
from journal.log.catalog import topic_rows
from journal.log.segment import segments_of
from journal.records import outcome_entry
from journal.records.outcome import Outcome
from journal.records.outcome_entry import ArchivedOutcome
from journal.transaction_states import State, TransactionNumber
from journal.transactions.outcome_archive import head_of
from journal.transactions.table import live_rows, remembered
from journal.walks.findings import Affected, Finding
from journal.walks.outcome_walk import archive_from, archive_state, walk_archive
from journal.walks.segment_walk import FrameEntry, walk_segment
from journal.xid import Xid


@dataclass(slots=True)
class _Write:
    """A decided write, and the state of its branches so far. ``last``: no later one of its name is decided."""

    decided: Decided
    place: tuple[str, int, int]
    """Path, position and offset of the decision."""
    wanted: set[str] = field(default_factory=set)
    """The listed branches of which nothing has been seen."""
    messages: int = 0
    whole: bool = True
    """Whether all branches seen so far are committed."""
    last: bool = False


def check_decisions(filesystem: IFilesystem, newest: Checkpoint) -> Iterator[Finding]:
    """Yield wrong ends of the branches of Spark's writes; damage to logs is reported by their check."""
    store = next((each for each in newest.stores if each.topic == TOPIC), None)
    if store is not None:
        yield from _Check(filesystem, newest, store).run()


class _Check:
    def __init__(self, filesystem: IFilesystem, newest: Checkpoint, store: StoreState) -> None:
        self._filesystem = filesystem
        self._newest = newest
        self._store = store
        self._writes: dict[tuple[str, int], _Write] = {}
        self._first: dict[str, int] = {}
        """The first version of each name that the log has a decision about."""
        self._seen: set[TransactionNumber] = set()
        self._lost = False
        """Whether decisions cannot be read, which the check of the log reports."""

    def run(self) -> Iterator[Finding]:
        """Run all steps, in order."""
        yield from self._read()
        live = [row for row in live_rows(self._newest) if row.state is State.PREPARED]
        for row in live:
            yield from self._prepared(row.xid, row.number)
        for outcome in remembered(self._newest):
            if outcome.xid is not None and outcome.xid.format_id == FORMAT_ID:
                self._seen.add(outcome.number)
                yield from self._ended(outcome, forgotten=False)
        for entry in self._archived():
            if entry.number not in self._seen and entry.lsn <= self._newest.header.lsn:
                yield from self._ended(entry, forgotten=True)
        for write in self._writes.values():
            if write.whole and not write.wanted and write.messages != write.decided.rows:
                what = f"{_name(write)} was decided with {write.decided.rows} rows, its branches hold {write.messages}"
                yield self._finding(write, what)

    # -- decisions -------------------------------------------------------------------------------------

    def _read(self) -> Iterator[Finding]:
        """Read all decisions that the log has; those from the checkpoint's end of it on came later."""
        newest: dict[str, _Write] = {}
        for path, each in self._frames():
            try:
                messages = frame.decode_run(bytes(each.frame))
            except TxBrokerError:
                self._lost = True  # the check of the log reports it
                continue
            for offset, message in enumerate(messages, each.offset):
                try:
                    decided = spark_decision.unpack(message.value or b"")
                except TxBrokerError as error:
                    what = f"{error}; a repetition of what was decided last may fail"
                    affects = Affected(TOPIC, 0, offset, offset)
                    yield Finding(path, each.position, what, True, affects, of_decision=True)
                    continue
                write = self._take(decided, (path, each.position, offset))
                if offset < self._store.end_offset:
                    newest[decided.name] = write
        for write in newest.values():
            write.last = True

    def _frames(self) -> Iterator[tuple[str, FrameEntry]]:
        for segment in segments_of(self._store):
            try:
                for each in walk_segment(self._filesystem, segment.path, segment.base_offset, segment.size):
                    if isinstance(each, FrameEntry):
                        yield segment.path, each
                    else:
                        self._lost = True
            except OSError:
                self._lost = True

    def _take(self, decided: Decided, place: tuple[str, int, int]) -> _Write:
        """Add a decision. A version that is decided twice had its register deleted in between: the branches of both are
        committed.
        """
        key = decided.name, decided.version
        write = self._writes.setdefault(key, _Write(decided, place))
        if write.decided is not decided:
            write.decided = msgspec.structs.replace(decided, rows=write.decided.rows + decided.rows)
            write.place = place
        write.wanted.update(decided.branches)
        self._first.setdefault(decided.name, decided.version)
        return write

    # -- branches --------------------------------------------------------------------------------------

    def _of(self, xid: Xid | None) -> tuple[_Write | None, str]:
        """Return the write that lists a branch, and its key there."""
        branch = named_by(xid)
        if branch is None or xid is None:
            return None, ""
        key = xid.branch.decode()
        write = self._writes.get((branch.name, branch.version))
        return (write, key) if write is not None and key in write.wanted else (None, key)

    def _prepared(self, xid: Xid | None, number: TransactionNumber) -> Iterator[Finding]:
        write, key = self._of(xid)
        if write is None or write.place[2] >= self._store.end_offset:
            return
        write.wanted.discard(key)
        write.whole = False
        what = f"{_name(write)} is decided, and its branch {xid} is not committed yet"
        if write.last:
            what = f"{what}: the next run of the same version finishes it, or 'python -m spark.resolve'"
        else:
            what = f"{what}, though a later version is decided: commit it by hand, 'python -m spark.resolve' would not"
        yield self._finding(write, what, number, xid, harmless=write.last)

    def _ended(self, outcome: Outcome | ArchivedOutcome, forgotten: bool) -> Iterator[Finding]:
        write, key = self._of(outcome.xid)
        if write is None:
            if key and outcome.state is State.COMMITTED and self._must_list(outcome):
                yield from self._undecided(outcome, harmless=forgotten and outcome.heuristic)
            return
        write.wanted.discard(key)
        if outcome.state is State.COMMITTED:
            write.messages += outcome.messages
            return
        write.whole = False
        if write.place[2] >= self._store.end_offset:
            return
        by = f" by {outcome.by}" if outcome.by else ""
        why = f": {outcome.why}" if outcome.why else ""
        what = f"{_name(write)} was decided, and its branch {outcome.xid} was rolled back{by}{why}"
        what = f"{what}; its {outcome.messages} rows are missing"
        if forgotten and outcome.heuristic:
            what = f"{what}, if they were not written again before it was forgotten"
        yield self._finding(write, what, outcome.number, outcome.xid, forgotten and outcome.heuristic)

    def _must_list(self, outcome: Outcome | ArchivedOutcome) -> bool:
        """Return whether the decision would be in the log: it has the whole log, or an earlier decision of that
        name.
        """
        branch = named_by(outcome.xid)
        if branch is None or self._lost or outcome.at < self._since():
            return False
        return not self._store.start_offset or self._first.get(branch.name, branch.version) < branch.version

    def _since(self) -> int:
        """Return the journal time from which on the log has decisions."""
        if self._store.start_offset and self._store.segments:
            return self._store.segments[0].first_time
        rows = topic_rows(self._newest)
        return next((row.created for row in rows if row.name == TOPIC), 0)

    def _undecided(self, outcome: Outcome | ArchivedOutcome, harmless: bool) -> Iterator[Finding]:
        branch = named_by(outcome.xid)
        assert branch is not None
        what = (
            f"branch {outcome.xid} of {branch.name}/{branch.version} is committed, and no decision lists it"
        )
        what = f"{what}: its {outcome.messages} rows may be there twice"
        write = self._writes.get((branch.name, branch.version))
        if write is not None:
            yield self._finding(write, what, outcome.number, outcome.xid, harmless)
            return
        affects = Affected(TOPIC, 0, transaction=outcome.number, xid=outcome.xid)
        yield Finding(self._store.directory, 0, what, harmless, affects, of_decision=True)

    def _archived(self) -> Iterator[ArchivedOutcome]:
        """Yield the entries of branches, from the first decision on."""
        state = archive_state(self._filesystem, self._newest)
        if state is not None and self._store.segments:
            with suppress(OSError):  # the check of the archive's log reports it
                first = archive_from(self._filesystem, state, self._since())
                for each in walk_archive(self._filesystem, state, first):
                    if not isinstance(each, Finding) and _is_branch(each.outcome):
                        yield each.outcome
        for waiting in head_of(self._newest)[1]:
            entry = outcome_entry.unpack(memoryview(waiting)[HEADER_BYTES:])
            if _is_branch(entry):
                yield entry

    def _finding(
        self,
        write: _Write,
        what: str,
        number: TransactionNumber | None = None,
        xid: Xid | None = None,
        harmless: bool = False,
    ) -> Finding:
        path, position, offset = write.place
        affects = Affected(TOPIC, 0, offset, offset, transaction=number, xid=xid)
        return Finding(path, position, what, harmless, affects, of_decision=True)


def _is_branch(outcome: ArchivedOutcome) -> bool:
    return outcome.xid is not None and outcome.xid.format_id == FORMAT_ID


def _name(write: _Write) -> str:
    return f"{write.decided.name}/{write.decided.version}"
