"""One-line faults in the translation of AMQP and in delayed exchanges, which histories with such clients must find."""

from __future__ import annotations

from typing import Final

from tests.simulation.mutants import Mutant

_CONSUMING: Final = "txbroker/channels/consuming.py"
_DELAYING: Final = "txbroker/broker/queues/delaying.py"
_DEAD_LETTERS: Final = "txbroker/groups/dead_letters.py"
_FOLD: Final = "journal/folds/schedule.py"
_PUBLISHING: Final = "txbroker/channels/publishing.py"
_SETTLING: Final = "txbroker/channels/settling.py"
_TRANSACTIONS: Final = "txbroker/channels/transactions.py"

AMQP_MUTANTS: Final = (
    # -- what is confirmed
    Mutant(
        "confirm a message when it comes",
        _PUBLISHING,
        "        batch.frames.append(frame)\n",
        "        batch.frames.append(frame)\n        self._confirm(tag, 1)\n        batch.first = 0\n",
    ),
    Mutant(
        "take a refused batch for stored",
        _PUBLISHING,
        "self._confirm(batch.first, len(batch.frames), taken=False)",
        "self._confirm(batch.first, len(batch.frames))",
    ),
    # -- what is acknowledged
    Mutant(
        "forget an acknowledgement of several",
        _SETTLING,
        "            found = self.deliveries.take_up_to(tag)\n",
        "            found = self.deliveries.take_up_to(tag)[1:]\n",
    ),
    Mutant(
        "return what is rejected",
        _SETTLING,
        "            for run in runs:\n                self.reject_run(run)\n        self.on_settled(runs)\n",
        "            self.give_back(runs)\n        self.on_settled(runs)\n",
    ),
    Mutant(
        "drop what is returned",
        _SETTLING,
        "        if requeue:\n            self.give_back(runs)\n",
        "        if requeue:\n            for run in runs:\n                self.reject_run(run)\n",
    ),
    # -- transactions
    Mutant(
        "acknowledge in a transaction at once",
        _SETTLING,
        "            transaction.acknowledged += runs\n            return\n",
        "            transaction.acknowledged += []\n",
    ),
    Mutant(
        "commit the messages without the acknowledgements",
        _TRANSACTIONS,
        "positions=positions, data=frames,",
        "positions=[], data=frames,",
    ),
    Mutant(
        "commit what is rolled back",
        _TRANSACTIONS,
        "        self._channel.transaction = Transaction(self._channel.connection.uncommitted)\n        return found\n",
        "        self._channel.transaction = Transaction(self._channel.connection.uncommitted)\n"
        "        self._channel.transaction.frames = list(found.frames)\n"
        "        return found\n",
    ),
    # -- what is delivered
    Mutant(
        "not tell that a message comes again",
        _CONSUMING,
        "pieces += self._delivered(consumer.prefix, content, offset in again)",
        "pieces += self._delivered(consumer.prefix, content, False)",
    ),
    Mutant(
        "deliver more than the prefetch",
        _CONSUMING,
        "                room = min(room, consumer.limit - consumer.count)\n",
        "                room = min(room, consumer.limit + 1 - consumer.count)\n",
    ),
    Mutant(
        "deliver more than the prefetch of the channel",
        _CONSUMING,
        "                room = min(room, self._limit - self._count)\n",
        "                room = min(room, self._limit + 1 - self._count)\n",
    ),
    # -- dead letters
    Mutant(
        "place a dead letter, and leave it where it died",
        _DEAD_LETTERS,
        "        unsent = Unsent(runs, positions)\n",
        "        unsent = Unsent(runs, [])\n",
    ),
    Mutant(
        "finish what is dead, and place it nowhere",
        _DEAD_LETTERS,
        "        unsent = Unsent(runs, positions)\n",
        "        unsent = Unsent([], positions)\n",
    ),
    Mutant(
        "forget at a start what is dead and was not moved",
        _DEAD_LETTERS,
        "        self._next.update(dict.fromkeys(self._found()))\n",
        "",
    ),
    # -- what waits at an exchange
    Mutant(
        "schedule what waits, and leave it where it was",
        _DELAYING,
        "        unsent = Unsent(runs, positions)\n",
        "        unsent = Unsent(runs, [])\n",
    ),
    Mutant(
        "finish what waits, and schedule nothing",
        _DELAYING,
        "        unsent = Unsent(runs, positions)\n",
        "        unsent = Unsent([], positions)\n",
    ),
    Mutant(
        "take for the age of what waits how far the wall clock has gone",
        _FOLD,
        "        stamped = appended + max(self._ahead_of_wall, default=0)\n",
        "        stamped = appended + min(self._ahead_of_wall, default=0)\n",
    ),
    Mutant(
        "forget that the time counts in which a message was not scheduled",
        _DELAYING,
        "            due = max(1, now - age + delay)\n",
        "            due = max(1, now - 2 * age + delay)\n",
    ),
    Mutant(
        "publish what is due, and forget that it is over",
        _FOLD,
        "            if record.ids:\n                self._end(zip(record.ids, repeat(record.address)), record.at)\n",
        "            pass\n",
    ),
    Mutant(
        "let a message go without its delay",
        "txbroker/queues/delays.py",
        "    return min(LONGEST, max(0, _milliseconds(headers)) * _MILLISECOND)\n",
        "    return min(LONGEST, max(0, _milliseconds(headers)) * _MILLISECOND // 2)\n",
    ),
)
