"""One-line faults in the engine and the service, each of which the simulation must find: ``make mutants``.

Most are in the project's list of lessons, or undo a rule of ``docs/recovery.md``. Left out are those that only damage
would show, such as the older of two checkpoints going too early: the simulation cuts power, kills, and lets calls fail;
it turns no bits. Left out are also those that something else makes good, and that have tests of their own: a full file
is forced before a roll, but the writer has forced every group of it already; logs are cut at a start, but flushes write
by position.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Mutant(NamedTuple):
    """What is wrong, in which file, and the text that is replaced: it is there exactly once."""

    name: str
    path: str
    old: str
    new: str


MUTANTS: Final = (
    # -- answers and readers before the disk
    Mutant(
        "answer before the force",
        "journal/engine/engine.py",
        "            self._newest.waiters.append((deliver, answer))",
        "            deliver(answer)",
    ),
    Mutant(
        "show messages before the force",
        "journal/engine/engine.py",
        "        self._filling.ends[store] = base + count\n",
        "        store.publish(base + count)\n",
    ),
    Mutant(
        "show a commit before the force",
        "journal/engine/engine.py",
        "                self._filling.ends[store] = store.end_offset\n",
        "                store.publish(store.end_offset)\n",
    ),
    Mutant(
        "show what begins and ends with one request before the force",
        "journal/transactions/application.py",
        "        return Applied(outcome, self._at_once(record, data, placed_by(lsn, record)))\n",
        "        for store in self._at_once(record, data, placed_by(lsn, record)):\n"
        "            store.publish(store.end_offset)\n"
        "        return Applied(outcome)\n",
    ),
    Mutant(
        "not remember how what begins and ends with one request ended",
        "journal/transactions/table.py",
        "        self.outcomes.remember_new(outcome)\n        if self.archive.on:\n            parts = ",
        "        if self.archive.on:\n            parts = ",
    ),
    Mutant(
        "show the second phase in one go before the force",
        "journal/transactions/application.py",
        "        self._staging.release(staged)\n        return store\n",
        "        self._staging.release(staged)\n        store.publish(store.end_offset)\n        return store\n",
    ),
    Mutant(
        "leave out what a deciding request carries behind adds",
        "journal/transactions/store.py",
        "        if unsent is NOTHING:\n            return self._engine.decide(record)\n",
        "        if unsent is not None:\n            return self._engine.decide(record)\n",
    ),
    Mutant(
        "leave out the positions that a commit carries",
        "journal/folds/groups.py",
        "        positions: Sequence[GroupPositions] = record.positions if record.settles else ()\n",
        "        positions: Sequence[GroupPositions] = []\n",
    ),
    Mutant(
        "forget the xid of what was prepared in one go",
        "journal/transactions/table.py",
        "            self.live_xids[transaction.xid] = number\n        if transaction.state is PREPARED:\n",
        "            pass\n        if transaction.state is PREPARED:\n",
    ),
    Mutant(
        "tell of a send before the large commit in its group is shown",
        "journal/engine/engine.py",
        "        first = self.large_commits.show(self.forced_lsn, ends)\n",
        "        [store.publish(end) for store, end in ends.items()] and self.on_published(list(ends))\n"
        "        first = self.large_commits.show(self.forced_lsn, ends)\n",
    ),
    Mutant(
        "answer a repeated send before the first is forced",
        "txbroker/broker/sends/sends.py",
        "                return Sent(command.correlation, base)\n            if",
        "                return session.deliver(__import__('txbroker.wire.codec').wire.codec.encode("
        "Sent(command.correlation, base)))\n            if",
    ),
    Mutant(
        "run what stands on a job that failed",
        "txbroker/server/threads/flusher.py",
        "        if not self._broken:\n",
        "        if True:\n",
    ),
    # -- decisions
    Mutant(
        "commit what a stranger calls empty",
        "txbroker/broker/transactions/transactions.py",
        "seen, totals = (command.seen, command.totals) if own else (0, None)",
        "seen, totals = command.seen if own else 0, command.totals",
    ),
    # -- names that come again
    Mutant(
        "delete whatever topic has the name",
        "txbroker/broker/admin.py",
        "        if topic.id != command.id:\n",
        "        if False:\n",
    ),
    Mutant(
        "delete whatever group has the name",
        "txbroker/broker/groups/consumer_groups.py",
        "        if known.id != command.id:\n",
        "        if False:\n",
    ),
    Mutant(
        "forget in a checkpoint how groups try again",
        "journal/folds/group.py",
        "    group.settings, group.used = row.settings, row.used\n",
        "    group.used = row.used\n",
    ),
    Mutant(
        "say that a group tries again otherwise, and record nothing",
        "txbroker/broker/groups/consumer_groups.py",
        "            self._engine.accept(GroupAltered(name, wanted, self._engine.now(), made, session.as_actor()))\n",
        "            self._groups._group(name, made).settings = wanted\n",
    ),
    Mutant(
        "forget a topic's id in a checkpoint",
        "journal/log/catalog.py",
        "row.created, row.id, list(row.ranges)",
        "row.created, bytes(16), list(row.ranges)",
    ),
    Mutant(
        "make a group of a transaction without its id",
        "journal/folds/groups.py",
        "            self._move(each.group, each.id, each.offsets, each.settled, record.at)\n",
        '            self._move(each.group, b"", each.offsets, each.settled, record.at)\n',
    ),
    # -- whose session it was
    Mutant(
        "end a session for whoever shows its number",
        "txbroker/broker/access/welcome.py",
        "before.secret.is_same(former.secret)",
        "former.secret",
    ),
    Mutant(
        "take a session of another time line for one of this",
        "journal/log/start_history.py",
        "        return self._nonces.get(number) == nonce\n",
        "        return True\n",
    ),
    Mutant(
        "forget earlier starts at a checkpoint",
        "journal/log/start_history.py",
        "        return iter([StartRow(number, nonce, *restored) for number, nonce in self._nonces.items()])\n",
        "        return iter(())\n",
    ),
    # -- forces left out
    Mutant("write a group and not force it", "journal/wal/group.py", "        journal.force()\n", ""),
    Mutant(
        "try a failed force again",
        "journal/wal/writer.py",
        '            self._poison("forcing", error)',
        "            self._file.force()",
    ),
    Mutant(
        "roll without forcing the new file's header",
        "journal/wal/writer.py",
        "        spare.force()\n        filesystem.rename",
        "        filesystem.rename",
    ),
    Mutant(
        "roll without forcing the directory",
        "journal/wal/writer.py",
        "        filesystem.force_directory(filenames.JOURNAL_DIRECTORY)\n        spare.close()",
        "        spare.close()",
    ),
    Mutant(
        "flush a segment and not force it",
        "journal/log/flush.py",
        "        file.force()\n        self._files.release(file)",
        "        self._files.release(file)",
    ),
    Mutant(
        "not force the directory of a new segment",
        "journal/log/flush.py",
        "            filesystem.force_directory(segment.directory)\n",
        "            pass\n",
    ),
    Mutant(
        "rename a checkpoint that is not forced",
        "journal/formats/checkpoint.py",
        "        file.force()\n    finally",
        "        pass\n    finally",
    ),
    Mutant(
        "not force the directory of checkpoints",
        "journal/formats/checkpoint.py",
        "    filesystem.force_directory(filenames.CHECKPOINT_DIRECTORY)\n",
        "",
    ),
    Mutant(
        "not force staged frames",
        "journal/transactions/staging.py",
        "            file.force()\n",
        "            pass\n",
    ),
    Mutant(
        "not force the directory of staged files",
        "journal/engine/jobs.py",
        "        self._engine.filesystem.force_directory(filenames.STAGED_DIRECTORY)\n",
        "        pass\n",
    ),
    # -- checkpoints that say too much
    Mutant(
        "write a checkpoint before the journal is forced up to it",
        "journal/engine/housekeeping.py",
        "self.phase is Phase.FORCING and self._engine.forced_lsn >= self._next.lsn:",
        "self.phase is Phase.FORCING:",
    ),
    Mutant(
        "write a checkpoint before the logs are flushed",
        "journal/engine/housekeeping.py",
        "        while missing and missing[-1].flushed_offset >= self._stores[missing[-1]][0]:\n",
        "        while missing:\n",
    ),
    Mutant(
        "let the journal go that undecided transactions need",
        "journal/engine/housekeeping.py",
        "engine.transactions.table.needed_from(lsn + 1)",
        "lsn + 1",
    ),
    Mutant(
        "leave how transactions ended out of checkpoints",
        "journal/transactions/outcomes.py",
        ", *self.by_number.values()]",
        "]",
    ),
    # -- starts
    Mutant(
        "believe the page cache",
        "journal/recovery/start.py",
        "            self._rewrite_unproven(scans[-1])\n",
        "            pass\n",
    ),
    Mutant(
        "rewrite what is unproven and not force it",
        "journal/recovery/start.py",
        "            file.force()\n",
        "            pass\n",
    ),
    Mutant(
        "use a start's number again",
        "journal/recovery/start.py",
        "self._engine.started(started + step, self",
        "self._engine.started(1, self",
    ),
    Mutant(
        "use LSNs again",
        "journal/recovery/start.py",
        "        first_lsn = (max(end, highest) // START_STRIDE + step) * START_STRIDE\n",
        "        first_lsn = max(end - 1, highest + 1)\n",
    ),
    Mutant(
        "believe groups of an earlier use of the file",
        "journal/wal/reader.py",
        "            if header is None or header.first_lsn != lsn:",
        "            if header is None:",
    ),
    Mutant(
        "believe the body of a torn group",
        "journal/wal/reader.py",
        "        return len(body) == group.header.length and self._checksum(body) == group.header.body_crc",
        "        return True",
    ),
    Mutant(
        "keep active transactions over a start",
        "journal/transactions/table.py",
        "            transaction = self._end(number)\n",
        "            transaction = None\n",
    ),
    Mutant(
        "let journal time begin anew",
        "journal/recovery/start.py",
        "        engine.set_time(at)\n",
        "        engine.set_time(0)\n",
    ),
    Mutant(
        "leave prepared transactions of a checkpoint out of their table",
        "journal/transactions/table.py",
        "            self.live[number] = self.prepared[number] = transaction\n",
        "            self.live[number] = transaction\n",
    ),
    Mutant(
        "never find a journal file that was kept for reuse",
        "journal/wal/writer.py",
        "        lsns = (filenames.parse_recycled_file(name) for name in names)\n",
        "        lsns = (filenames.parse_journal_file('') for name in names)\n",
    ),
    Mutant(
        "recycle a journal file under the name that it had",
        "journal/wal/writer.py",
        "                filesystem.rename(path, filenames.recycled_file(lsn))\n",
        "                filesystem.rename(path, path)\n",
    ),
    Mutant(
        "let a journal file go that the older checkpoint needs",
        "journal/wal/writer.py",
        "self._files[1].header.previous_end <= below:",
        "self._files[0].header.first_lsn <= below:",
    ),
    # -- transactions
    Mutant(
        "forget one outcome more than the client has seen",
        "journal/transactions/outcomes.py",
        "            if serial > seen or self",
        "            if serial > seen + 1 or self",
    ),
    Mutant(
        "call one outcome more forgotten than the client has seen",
        "journal/transactions/outcomes.py",
        "        self.forgotten_through[session] = seen\n",
        "        self.forgotten_through[session] = seen + 1\n",
    ),
    Mutant(
        "call the last outcome that the client has seen rolled back",
        "journal/transactions/outcomes.py",
        "        return number.serial <= self.forgotten_through.get(number.session, 0)",
        "        return number.serial < self.forgotten_through.get(number.session, 0)",
    ),
    Mutant(
        "put requests that must wait first in line",
        "txbroker/broker/parked_requests.py",
        "        self.line.append(waiting)",
        "        self.line.appendleft(waiting)",
    ),
    Mutant(
        "let requests overtake those of their session that wait",
        "txbroker/broker/parked_requests.py",
        "        if session.parked:\n            return True\n",
        "",
    ),
    Mutant(
        "tell where a log starts before that is forced",
        "txbroker/broker/fetches/fetches.py",
        "        if reading.failed or self._engine.catalog.start_moved_lsn > self._engine.forced_lsn:",
        "        if reading.failed:",
    ),
    Mutant(
        "lose prepared transactions at a start",
        "journal/transactions/table.py",
        "        transaction.prepared_at = record.at\n        self.prepared[number] = transaction\n",
        "        transaction.prepared_at = record.at\n        self._enlist(transaction)\n",
    ),
    Mutant(
        "roll back what is prepared with its connection",
        "journal/transactions/store.py",
        "        for number in list(self.table.active.get(session, ())):",
        "        for number in [n for n in self.live if n.session == session]:",
    ),
    Mutant(
        "commit what did not all arrive",
        "journal/transactions/store.py",
        "        if transaction.totals == said:",
        "        if said:",
    ),
    Mutant(
        "answer 'rolled back' of what is forgotten",
        "journal/transactions/outcomes.py",
        "        if outcome is None and self.is_forgotten(number):",
        "        if outcome is None and not number:",
    ),
    Mutant(
        "call an unfinished commit of another session rolled back",
        "txbroker/broker/transactions/transactions.py",
        "        if not own and known is None:\n            self._check_begun(number)\n",
        "",
    ),
    Mutant(
        "move a group's position though the transaction is rolled back",
        "journal/folds/groups.py",
        "    def _roll_back(self, record: TransactionRolledBack) -> None:\n"
        "        self._release(TransactionNumber(record.session, record.serial))\n",
        "    def _roll_back(self, record: TransactionRolledBack) -> None:\n"
        "        for each in self._release(TransactionNumber(record.session, record.serial)):\n"
        "            self._move(each.group, each.id, each.offsets, each.settled, record.at)\n",
    ),
    Mutant(
        "forget positions that prepared transactions hold",
        "journal/folds/groups.py",
        "            if row.prepared:\n                self._hold(number)\n",
        "            if row.prepared:\n                self._prepared[number] = None\n",
    ),
    Mutant(
        "forget over a start the partitions that a topic got later",
        "journal/log/catalog.py",
        "list(t.ranges), t.created",
        "t.ranges[:1], t.created",
    ),
    # -- once
    Mutant(
        "store a repeated send again",
        "journal/folds/producers.py",
        "                return known.repeated(sequence, count)\n",
        "                return None\n",
    ),
    Mutant(
        "take what strangers send under a producer's id",
        "journal/folds/producers.py",
        " or producer.owner != owner",
        "",
    ),
    Mutant(
        "forget over a start what producers have sent",
        "journal/folds/producers.py",
        "    def snapshot(self) -> Iterator[Any]:\n",
        "    def snapshot(self) -> Iterator[Any]:\n        self = ProducersFold()\n",
    ),
)
