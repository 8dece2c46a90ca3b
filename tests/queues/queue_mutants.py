"""Faults in queues, exchanges and deliveries, each of which histories of queues must find: ``python -m
tests.queues.queue_teeth``.

Left out are those that only a full disk, damage, a limit or a slow peer would show, which these histories do not have.
"""

from __future__ import annotations

from typing import Final

from tests.queues.ending_mutants import ENDING_MUTANTS
from tests.queues.further_mutants import FURTHER_MUTANTS
from tests.simulation.mutants import Mutant

_DELIVERIES, _TAKES = "txbroker/queues/level.py", "txbroker/broker/queues/takes.py"
_ALL_DELIVERIES = "txbroker/queues/deliveries.py"
_LINE = "txbroker/broker/queues/take_line.py"
_RETURNS = "txbroker/broker/queues/returns.py"
_REQUESTS, _PUBLISHING = "txbroker/broker/queues/queue_requests.py", "txbroker/queues/publishing.py"
_DECLARATIONS, _SENDS = "txbroker/queues/declarations.py", "txbroker/broker/sends/sends.py"
_FOLD, _BINDINGS, _GROUPS = "journal/folds/queues.py", "journal/folds/bindings.py", "journal/folds/groups.py"
_APPLICATION, _RECORD = "journal/transactions/application.py", "journal/records/record.py"
_SLICES, _STAGING = "journal/transactions/commit_application.py", "journal/transactions/staging.py"
_TABLE = "journal/transactions/table.py"
_CONSUMING, _RETRIES = "txbroker/broker/groups/consumer_groups.py", "txbroker/groups/retries.py"
_DEAD = "txbroker/groups/dead_letters.py"


MUTANTS: Final = (
    # -- what is ready
    Mutant(
        "deliver what a prepared transaction holds since an earlier start",
        _DELIVERIES,
        "        self.look_again()\n        self._ready =",
        "        self._ready =",
    ),
    Mutant(
        "pass over what a transaction held that was prepared and rolled back before one force",
        _DELIVERIES,
        "        self._held.update(held)\n",
        "",
    ),
    Mutant(
        "deliver returned messages twice",
        _DELIVERIES,
        "        self._ready.remove(taken)\n",
        "",
    ),
    Mutant(
        "forget after a start that a message is due later",
        _DELIVERIES,
        "                later.add(each.offset)\n",
        "",
    ),
    Mutant(
        "never look at what is due later again after a start",
        _DELIVERIES,
        "                self._wait(each.offset, each.due, now)\n",
        "",
    ),
    Mutant(
        "say of nothing that it may have been delivered before the start",
        _DELIVERIES,
        "        return max(self._ready.frontier, self.redelivered_below)",
        "        return self._ready.frontier",
    ),
    Mutant(
        "say of nothing returned that it was delivered before",
        _DELIVERIES,
        "        return max(self._ready.frontier, self.redelivered_below)",
        "        return self.redelivered_below",
    ),
    Mutant(
        "count what is due later as ready",
        _DELIVERIES,
        "        return max(0, self.count_free() - later)",
        "        return self.count_free()",
    ),
    Mutant(
        "hold nothing again after a checkpoint",
        _GROUPS,
        "            if row.prepared:\n                self._hold(number)",
        "            if row.prepared:\n                self._prepared[number] = None",
    ),
    Mutant(
        "release nothing after a rollback",
        _DELIVERIES,
        "            self.delivered[ROLLED_BACK] = released\n",
        "            pass\n",
    ),
    Mutant(
        "count no attempt when a prepared transaction is rolled back",
        _RETURNS,
        "        if not self.is_stopping and ROLLED_BACK not in self._ended:\n",
        "        for each in self._deliveries.held_by(ROLLED_BACK):\n"
        "            each.give_back(ROLLED_BACK, each.lowest(ROLLED_BACK, 256))\n"
        "            self.serve(each)\n"
        "        if False:\n",
    ),
    Mutant(
        "release what is rolled back before the force",
        _ALL_DELIVERIES,
        "                    self._engine.when_forced(self._look_again, None)\n"
        "                self._changed[number] = None",
        "                    pass\n                self._changed[number] = None\n"
        "                self._look_again(None)",
    ),
    Mutant(
        "leave what was prepared with its session",
        _DELIVERIES,
        "            kept.difference_update(finished)\n            kept.difference_update(held)\n",
        "            kept.difference_update(finished)\n",
    ),
    Mutant(
        "deliver at once what is returned for later",
        _DELIVERIES,
        "            if not self._wait(offset, due, now):\n                self._make_ready(",
        "            if not self._wait(offset, due, now) or due:\n                self._make_ready(",
    ),
    Mutant(
        "deliver what is published before the force",
        "journal/engine/engine.py",
        "                self._filling.ends[store] = store.end_offset\n",
        "                store.publish(store.end_offset)\n",
    ),
    Mutant(
        "give what was returned to others before the force",
        "txbroker/broker/sessions/accounts.py",
        "        self._when_forced(session.deliver, answer)\n",
        "        session.deliver(answer)\n",
    ),
    # -- whose a delivery is
    Mutant(
        "take acknowledgements from anybody",
        _DELIVERIES,
        "        return lacking.first if lacking else None",
        "        return None",
    ),
    Mutant(
        "give back what another session has",
        _DELIVERIES,
        "        back = kept.shared(offsets)\n",
        "        back = offsets.copy()\n",
    ),
    Mutant(
        "let anybody give a message up that was returned before",
        _DELIVERIES,
        " and (known.is_dead or not each.dead):",
        ":",
    ),
    Mutant(
        "not judge again at the commit what was acknowledged in a transaction",
        _CONSUMING,
        "            if each.group == QUEUE_GROUP:\n                self.judge_queues(number.session,",
        "            if False:\n                self.judge_queues(number.session,",
    ),
    Mutant(
        "refuse an acknowledgement that comes again",
        _REQUESTS,
        "                state.forgive(wanted, each.retried)  # a repetition",
        "                pass  # a repetition",
    ),
    Mutant(
        "roll nothing back of a transaction whose end is refused",
        "txbroker/broker/transactions/transactions.py",
        "        elif has_content and not isinstance(error, TransactionConflict):\n",
        "        elif False:\n",
    ),
    Mutant(
        "acknowledge outside of the transaction what it acknowledges",
        "txbroker/broker/transactions/transactions.py",
        "            self._transactions.add_offsets(\n",
        "            if settled:\n"
        "                self._consuming.settle(command.group, command.id, [], settled)\n"
        "            self._transactions.add_offsets(\n",
    ),
    # -- sessions that end, and those that wait
    Mutant(
        "count no attempt when a session ends",
        _RETURNS,
        "                self.count(states[0], holder, states[0].lowest(holder, RETURNED_AT_ONCE))",
        "                states[0].give_back(holder, states[0].lowest(holder, RETURNED_AT_ONCE))",
    ),
    Mutant(
        "leave to an ended session what it has",
        _RETURNS,
        "        if not self.is_stopping and self._deliveries.held_by(session.number):",
        "        if self.is_stopping and self._deliveries.held_by(session.number):",
    ),
    Mutant(
        "return what an ended session had of one queue only",
        _RETURNS,
        "                self._call_later(0.001 if self._engine.busy else 0, self._return_some)\n",
        "                pass\n",
    ),
    Mutant(
        "count no attempt of what is given back with one",
        _TAKES,
        "        if command.counted:\n",
        "        if False:\n",
    ),
    Mutant(
        "serve the last first",
        _LINE,
        "        found = level.popleft()\n",
        "        found = level.pop()\n",
    ),
    Mutant(
        "serve nobody who waits when messages come",
        _TAKES,
        "                self.serve(*levels)\n                at_once -= 1\n",
        "                at_once -= 1\n",
    ),
    Mutant(
        "let those wait for ever whose queue is deleted",
        _TAKES,
        "        for waiting in self._lines.pop(queue.partition, ()):\n",
        "        for waiting in [self._lines.pop(queue.partition, ())][:0]:\n",
    ),
    # -- purges, limits and dead letters
    Mutant(
        "purge what sessions have, too",
        _REQUESTS,
        "            self._settler.finish(state, range_of(run[0], end))",
        "            self._settler.finish(state, range_of(state.position, end))",
    ),
    Mutant(
        "allow one return more than the limit",
        _REQUESTS,
        "RetryRules(_WITHOUT_END if limit is None else limit + 1,",
        "RetryRules(_WITHOUT_END if limit is None else limit + 2,",
    ),
    Mutant(
        "allow one return less than the limit",
        _REQUESTS,
        "RetryRules(_WITHOUT_END if limit is None else limit + 1,",
        "RetryRules(_WITHOUT_END if limit is None else max(1, limit),",
    ),
    Mutant(
        "count no attempt of what is returned again",
        _RETRIES,
        "        attempts = 1 if known is None else known.attempts + 1",
        "        attempts = 1 if known is None else known.attempts",
    ),
    Mutant(
        "drop all dead letters of queues",
        _REQUESTS,
        "        exchange = None if name is None else self._fold.exchanges.get(name)",
        "        exchange = None",
    ),
    Mutant(
        "leave a dead letter in its queue when it is placed",
        _DEAD,
        "        unsent = Unsent(runs, positions)\n",
        "        unsent = Unsent(runs, [])\n",
    ),
    Mutant(
        "finish a dead letter and place it nowhere",
        _DEAD,
        "        unsent = Unsent(runs, positions)\n",
        "        unsent = Unsent([], positions)\n",
    ),
    Mutant(
        "forget the dead letters of an earlier start",
        _DEAD,
        "        self._next.update(dict.fromkeys(self._found()))\n",
        "",
    ),
    Mutant(
        "send a dead letter with its own key",
        _REQUESTS,
        "        return Origin(queue.name, None if key is None else key.encode(), exchange)",
        "        return Origin(queue.name, None, exchange)",
    ),
    Mutant(
        "let no dead letter into an internal exchange",
        _REQUESTS,
        "framed, is_ours=True)",
        "framed, is_ours=False)",
    ),
    Mutant(
        "delete a queue that is only empty until the next force",
        _REQUESTS,
        "        if command.if_empty and state.accepted:",
        "        if command.if_empty and state.left:",
    ),
    Mutant(
        "delete a queue of which a prepared transaction holds a message",
        _DECLARATIONS,
        "            holder = self._groups.holder(QUEUE_GROUP, number)\n",
        "            holder = None\n",
    ),
    Mutant(
        "let a log begin above what is not finished",
        _REQUESTS,
        "LogStartMoved(state.store.number, position, ",
        "LogStartMoved(state.store.number, state.store.high_watermark, ",
    ),
    # -- publishing
    Mutant(
        "route a repetition anew",
        _SENDS,
        "            if base is not None:\n                self.repeats += 1",
        "            if base is not None and not address:\n                self.repeats += 1",
    ),
    Mutant(
        "drop what must find a queue, if another message of the request does",
        _PUBLISHING,
        "                to = self._targets(exchange, attribute, is_mandatory(address), spent, steps)",
        "                to = self._targets(exchange, attribute, is_mandatory(address) and not found, spent, steps)",
    ),
    Mutant(
        "let clients send to an internal exchange",
        _PUBLISHING,
        "        if exchange.settings.internal and not is_ours:",
        "        if exchange.settings.internal and not (is_ours or self):",
    ),
    Mutant(
        "send all messages of a request where the first one goes",
        _PUBLISHING,
        "            if known != attribute:\n",
        "            if known is None:\n",
    ),
    Mutant(
        "not count what an exchange takes",
        _FOLD,
        "            exchange.taken += 0 if record.ids or is_volatile(record, len(data)) else record.count\n",
        "            pass\n",
    ),
    # -- where a record places messages
    Mutant(
        "put what is published into its first queue alone in a replay",
        _APPLICATION,
        "            for partition in targets:\n",
        "            from sys import _getframe as frame\n"
        "            is_live = 'replay' not in frame(3).f_code.co_filename\n"
        "            for partition in targets[: None if is_live or run is not record.runs[0] else 1]:\n",
    ),
    Mutant(
        "put what is published into its first queue alone",
        _APPLICATION,
        "            for partition in targets:\n",
        "            for partition in targets[: 1 if isinstance(record, Published) else None]:\n",
    ),
    Mutant(
        "commit into the first queue alone what comes with the commit",
        _APPLICATION,
        "            for partition in targets:\n",
        "            for partition in targets[: None if isinstance(record, Published) else 1]:\n",
    ),
    Mutant(
        "put the runs of one record on top of each other",
        _APPLICATION,
        "                bases[partition] += run.count\n",
        "                pass\n",
    ),
    Mutant(
        "apply a large commit to the first queue alone",
        _SLICES,
        "                self._catalog.place(store, frames, base, count, self._record.at, shared)\n",
        "                if not self._placed:\n"
        "                    self._catalog.place(store, frames, base, count, self._record.at, shared)\n",
    ),
    Mutant(
        "go on in the next queue after a slice where the one before it left off",
        _SLICES,
        "                self._placed += 1\n",
        "                self._placed += 1 if left > 0 or self._placed else 2\n",
    ),
    Mutant(
        "put the second run of a large commit where the first one is",
        _SLICES,
        "                self._bases[partition] = base + count\n",
        "                pass\n",
    ),
    Mutant(
        "forget in a staged file to which other queues messages go",
        _STAGING,
        "checksum, run.start, run.also)",
        "checksum, run.start, [] if len(staged.entries) else run.also)",
    ),
    Mutant(
        "delete a queue that an undecided transaction has messages for, as a second queue",
        _TABLE,
        "            if partition not in checksums:\n                assert",
        "            if partition not in checksums and partition == run.partition:\n                assert",
    ),
    # -- exchanges and bindings
    Mutant(
        "lose all bindings at a checkpoint",
        _FOLD,
        "            rows += self._durable_bindings(each)\n",
        "            pass\n",
    ),
    Mutant(
        "lose at a checkpoint what exchanges have taken",
        _FOLD,
        "ExchangeRow(each.name, each.number, each.settings, each.taken) for",
        "ExchangeRow(each.name, each.number, each.settings, 0) for",
    ),
    Mutant(
        "give the number of a deleted exchange again",
        _FOLD,
        "        del self.exchanges_by_number[exchange.number]\n",
        "        del self.exchanges_by_number[exchange.number]\n"
        "        self.next_exchange = max(self.exchanges_by_number) + 1\n",
    ),
    Mutant(
        "leave the bindings to a deleted queue",
        _FOLD,
        "        self._forget_destination((False, name))\n",
        "        pass\n",
    ),
    Mutant(
        "leave the bindings to a deleted exchange",
        _FOLD,
        "        self._forget_destination((True, record.exchange))\n",
        "        pass\n",
    ),
    Mutant(
        "go through no exchange but the first",
        _FOLD,
        "                    waiting.append(following)\n",
        "                    pass\n",
    ),
    Mutant(
        "let # stand for one word at least",
        _BINDINGS,
        "            node = node.children.get(ANY_WORDS)\n",
        "            break\n",
    ),
    Mutant(
        "let # stand for one word at most",
        _BINDINGS,
        "                if node.repeats:\n",
        "                if False:\n",
    ),
    Mutant(
        "compare headers whose names begin with x-",
        _BINDINGS,
        '(with_x or not name.startswith("x-"))',
        '(with_x or name != "x-match")',
    ),
    Mutant(
        "let all headers match where any is to",
        _BINDINGS,
        'match not in (b"any", b"any-with-x")',
        'match != b"any"',
    ),
    *ENDING_MUTANTS,
    *FURTHER_MUTANTS,
)
