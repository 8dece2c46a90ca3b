"""Faults in what ends by itself: messages, queues and exchanges. Histories of queues must find each, as those of
:mod:`tests.queues.queue_mutants`.
"""

from __future__ import annotations

from typing import Final

from tests.simulation.mutants import Mutant

_DELIVERIES, _TAKES = "txbroker/queues/level.py", "txbroker/broker/queues/takes.py"
_ALL_DELIVERIES = "txbroker/queues/deliveries.py"
_GIVING, _REMOVALS = "txbroker/broker/queues/giving.py", "txbroker/broker/queues/removals.py"
_REQUESTS, _PUBLISHING = "txbroker/broker/queues/queue_requests.py", "txbroker/queues/publishing.py"
_DEAD, _DEATHS = "txbroker/groups/dead_letters.py", "txbroker/queues/deaths.py"
_DECLARATIONS, _FOLD = "txbroker/queues/declarations.py", "journal/folds/queues.py"
_SIZES, _READY = "txbroker/queues/body_sizes.py", "txbroker/queues/ready.py"

ENDING_MUTANTS: Final = (
    # -- messages
    Mutant(
        "deliver what has expired",
        _GIVING,
        "            expired = expired_run(data, first, min(behind, new_from), ttl, now)\n",
        "            expired = None if ttl is None else expired_run(data, first, behind, ttl, 0)\n",
    ),
    Mutant(
        "answer a take with nothing, as all that it was to get has expired",
        _GIVING,
        "                if found.count or waiting.is_ended or not (are_done_with and is_there):",
        "                if found.count or is_there:",
    ),
    Mutant(
        "let nobody wait on who was to get what has expired",
        _GIVING,
        "        if not found.count and are_done_with and waits_on():",
        "        if False:",
    ),
    Mutant(
        "end messages at the head that a session has",
        _REMOVALS,
        "self._end(state, run[0], run[0] + too_many.of(state, run), Death.LENGTH)",
        "self._end(state, run[0] if state.queue.settings.dead_letter_exchange else state.position,"
        " run[0] + too_many.of(state, run), Death.LENGTH)",
    ),
    Mutant(
        "count what sessions have in the length of a queue",
        _REMOVALS,
        "queue.count_ready(now) - count,",
        "queue.count_ready(now) + queue.unacknowledged - count,",
    ),
    Mutant(
        "drop the newest of a run that is too long",
        _REMOVALS,
        "self._end(state, run[0], run[0] + too_many.of(state, run), Death.LENGTH)",
        "self._end(state, run[1] - too_many.of(state, run), run[1], Death.LENGTH)",
    ),
    Mutant(
        "say of what is too much that it has expired",
        _REMOVALS,
        "too_many.of(state, run), Death.LENGTH)",
        "too_many.of(state, run), Death.EXPIRED)",
    ),
    Mutant(
        "forget after a start that messages expire",
        _DELIVERIES,
        "(self.has_expiring or self.position < self.redelivered_below)\n",
        "self.has_expiring\n",
    ),
    Mutant(
        "forget that what was prepared before a start may expire",
        _ALL_DELIVERIES,
        "            found.has_expiring = not is_new and prepared_for(number) is not None\n",
        "            pass\n",
    ),
    Mutant(
        "let no time pass while the broker is stopped",
        "journal/log/catalog.py",
        "                self.wall_offset = record.wall - record.at\n",
        "                self.wall_offset = self.wall_offset or record.wall - record.at\n",
    ),
    Mutant(
        "not look at what is first once a message was taken",
        _TAKES,
        "            self.removals.taken(given)\n",
        "            pass\n",
    ),
    Mutant(
        "let what was returned for later stay when it is due, expired or too much",
        _REMOVALS,
        "        at = whole.next_due() if is_too_long(whole) else state.next_due()\n",
        "        at = None\n",
    ),
    Mutant(
        "drop what has expired though there are dead letters",
        _REMOVALS,
        "            if state.queue.settings.dead_letter_exchange is None:\n                self._settler",
        "            if death is Death.EXPIRED or state.queue.settings.dead_letter_exchange is None:\n"
        "                self._settler",
    ),
    Mutant(
        "let dead letters keep their expiration",
        _DEAD,
        "not in (DEATHS, EXPIRATION, EXCHANGE, KEYS)]",
        "not in (DEATHS, EXCHANGE, KEYS)]",
    ),
    Mutant(
        "count each death as the first",
        _DEATHS,
        "known.count + 1",
        "1",
    ),
    Mutant(
        "see no circle",
        _DEATHS,
        "        if each.queue == queue:\n            return True\n",
        "        if each.queue == queue:\n            return False\n",
    ),
    Mutant(
        "see a circle though a consumer has rejected the message",
        _DEATHS,
        "        if each.cause == CAUSES[Death.REJECTED]:\n            return False\n",
        "",
    ),
    Mutant(
        "count the runs of a request by themselves in what a queue refuses",
        _PUBLISHING,
        "added = spent.added.get(number, 0) + count\n",
        "added = count\n",
    ),
    Mutant(
        "not count what is not forced in what a queue refuses",
        _PUBLISHING,
        "spent.ready[number] = state.count_accepted(",
        "spent.ready[number] = state.count_ready(",
    ),
    Mutant(
        "count the runs of a request by themselves in the bytes that a queue refuses",
        _PUBLISHING,
        "added = spent.added_size.get(number, 0) + body_bytes(framed)",
        "added = body_bytes(framed)",
    ),
    Mutant(
        "count keys and headers in the bytes that a queue refuses",
        _SIZES,
        "        found += length - HEADER_BYTES - attribute\n",
        "        found += length - HEADER_BYTES\n",
    ),
    Mutant(
        "count keys and headers in the bytes of a queue",
        _SIZES,
        "            yield length - HEADER_BYTES - attribute\n",
        "            yield length - HEADER_BYTES\n",
    ),
    Mutant(
        "not count the bytes of what is not forced in what a queue refuses",
        _PUBLISHING,
        "            found += each.accepted_size + each.unmeasured_size\n",
        "            found += each.ready_size\n",
    ),
    Mutant(
        "count the bytes of what was given out",
        _READY,
        "                self.size -= self.sizes.sum(self.frontier, frontier)\n",
        "                pass\n",
    ),
    Mutant(
        "not count the bytes of what comes back",
        _READY,
        "            self.size += self.sizes.sum(first, end) - self._size_of(self.returned.within(first, end))\n",
        "            pass\n",
    ),
    Mutant(
        "count the bytes of what was returned and is taken again",
        _READY,
        "            self.size -= self._size_of(self.returned.shared(offsets))\n",
        "            pass\n",
    ),
    Mutant(
        "count after a start the bytes of what is finished",
        _READY,
        "        self.size += self.sizes.sum(max(first, self.frontier), end)\n",
        "        self.size += self.sizes.sum(first, end)\n",
    ),
    Mutant(
        "not count after a start the bytes of what was there before what is finished",
        _READY,
        "            self.size += self._size_of(self.returned.within(first, end))\n",
        "            pass\n",
    ),
    Mutant(
        "drop a message for each byte that is too much",
        _REMOVALS,
        "state.sizes.count_for(first, end, self.size)",
        "self.size",
    ),
    Mutant(
        "delete a queue at which somebody waits",
        _REQUESTS,
        "        return bool(state.is_delivered or self.takes.waiting_at(number) or",
        "        return bool(state.is_delivered or",
    ),
    Mutant(
        "delete a queue so long after its declaration",
        _TAKES,
        "        state.used_at = self._engine.now()\n        if session.allowance",
        "        if session.allowance",
    ),
    Mutant(
        "never delete a queue that is not used",
        _REQUESTS,
        "        return now - state.used_at >= expires\n",
        "        return now - state.used_at >= 2 * expires + 5_000_000\n",
    ),
    # -- exchanges
    Mutant(
        "send to the alternate exchange what has a way, too",
        _FOLD,
        "        return [(True, alternate)] if not found and alternate in self.exchanges else found\n",
        "        return [*found, (True, alternate)] if alternate in self.exchanges else found  # type: ignore\n",
    ),
    Mutant(
        "send nothing to an alternate exchange",
        _FOLD,
        "if not found and alternate in self.exchanges else found",
        "if False else found",
    ),
    Mutant(
        "leave an exchange that is to go when its last binding goes with another exchange",
        _DECLARATIONS,
        "        self._gone += self._fold.leading_to((True, exchange.name))\n",
        "",
    ),
    Mutant(
        "leave an exchange that is to go when its last queue is deleted",
        _DECLARATIONS,
        "        self._gone += self._fold.leading_to((False, queue.name))\n",
        "",
    ),
    Mutant(
        "let an exchange go with its first binding",
        _DECLARATIONS,
        "source.settings.auto_delete and not source.bindings:",
        "source.settings.auto_delete:",
    ),
    # -- dead letters that are refused
    Mutant(
        "keep dead letters that a full queue refuses, whatever their queue's strategy is",
        _REQUESTS,
        "        if settings.dead_letter_strategy is DeadLetterStrategy.AT_MOST_ONCE:\n",
        "        if False:\n",
    ),
    Mutant(
        "drop dead letters that a full queue refuses, whatever their queue's strategy is",
        _REQUESTS,
        "        if settings.dead_letter_strategy is DeadLetterStrategy.AT_MOST_ONCE:\n",
        "        if True:\n",
    ),
    Mutant(
        "drop a dead letter from all queues if one of them refuses it",
        _REQUESTS,
        "            straight = [each for each in straight if self._takes_dead_letter(each, framed, partition)]\n",
        "            if not all([self._takes_dead_letter(each, framed, partition) for each in straight]):\n"
        "                straight = []\n",
    ),
    # -- messages with hardly a time to live
    Mutant(
        "let a message expire that somebody has waited for",
        _GIVING,
        "first, min(behind, new_from), ttl, now)",
        "first, behind, ttl, now)",
    ),
    Mutant(
        "deliver expired messages to who only asks",
        _TAKES,
        "shares.next(waiting, state.count_free()), waiting.waits)",
        "shares.next(waiting, state.count_free()), True)",
    ),
    Mutant(
        "deliver expired messages again to who has waited",
        _TAKES,
        "        new_from = max(handed.fresh, handed.level.offered) if has_waited else NEVER\n",
        "        new_from = 0 if has_waited else NEVER\n",
    ),
)
