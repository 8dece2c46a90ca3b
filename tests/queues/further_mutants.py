"""Faults in priorities, in timeouts of consumers, and at delayed exchanges. Histories of queues must find each, as
those of :mod:`tests.queues.queue_mutants`.
"""

from __future__ import annotations

from typing import Final

from tests.simulation.mutants import Mutant

_WHOLE, _LEVEL = "txbroker/queues/queue_deliveries.py", "txbroker/queues/level.py"
_FOLD, _DECLARATIONS = "journal/folds/queues.py", "txbroker/queues/declarations.py"
_REQUESTS, _GIVING = "txbroker/broker/queues/queue_requests.py", "txbroker/broker/queues/giving.py"
_REMOVALS = "txbroker/broker/queues/removals.py"
_TIMEOUTS, _AGES = "txbroker/broker/queues/consumer_timeouts.py", "txbroker/queues/delivery_ages.py"
_DELAYING, _DUE = "txbroker/broker/queues/delaying.py", "txbroker/queues/due_messages.py"
_DELAYS = "txbroker/queues/delays.py"

FURTHER_MUTANTS: Final = (
    # -- priorities
    Mutant(
        "deliver the lowest priority first",
        _WHOLE,
        "        for each in self.levels:\n            fresh",
        "        for each in reversed(self.levels):\n            fresh",
    ),
    Mutant(
        "put what has a higher priority than its queue into the lowest",
        _FOLD,
        "min(priority, self.settings.max_priority)",
        "(priority if priority <= self.settings.max_priority else 0)",
    ),
    Mutant(
        "drop the highest priority first",
        _WHOLE,
        "(each for each in reversed(self.levels) if each.ready_run(now) is not None)",
        "(each for each in self.levels if each.ready_run(now) is not None)",
    ),
    Mutant(
        "purge the lowest priority alone",
        _REQUESTS,
        "for state in whole.levels]",
        "for state in whole.levels[-1:]]",
    ),
    Mutant(
        "count the lowest priority alone in what a queue refuses",
        _WHOLE,
        "        return sum(each.count_accepted(now) for each in self.levels)",
        "        return self.levels[-1].count_accepted(now)",
    ),
    Mutant(
        "give nothing of a lower priority when all of a higher one has expired",
        _GIVING,
        "                following = state.whole.take(session.number, MAX_TAKEN, self._engine.now())\n",
        "                following = state.whole.take(session.number, MAX_TAKEN, self._engine.now())\n"
        "                if following is not None and following.level is not state:\n"
        "                    for first, end in following.runs:\n"
        "                        following.level.give_back(session.number, range_of(first, end))\n"
        "                    following = None\n",
    ),
    Mutant(
        "let one priority of those expire that have got messages",
        _REMOVALS,
        "        for state in levels:\n            number",
        "        for state in levels[:1]:\n            number",
    ),
    Mutant(
        "delete a queue of which a transaction holds a higher priority",
        _DECLARATIONS,
        '            self._check_free(f"queue {queue.name!r}", number)\n',
        '            self._check_free(f"queue {queue.name!r}", queue.partition)\n',
    ),
    # -- timeouts
    Mutant(
        "leave what is late with its session",
        _LEVEL,
        "            if holder != ROLLED_BACK and (late := kept.shared(self.ages.late))\n",
        "            if holder == ROLLED_BACK and (late := kept.shared(self.ages.late))\n",
    ),
    Mutant(
        "count no attempt of what is late",
        _TIMEOUTS,
        "                self._returns.count(state, holder, some, LATE)\n",
        "                state.give_back(holder, some)\n                self._returns.serve(state)\n",
    ),
    Mutant(
        "take deliveries back before their time is over",
        _AGES,
        "        return self._generations[0][0] + self.timeout if",
        "        return self._generations[0][0] + self.timeout // 4 if",
    ),
    Mutant(
        "take deliveries back long after their time is over",
        _AGES,
        "        return self._generations[0][0] + self.timeout if",
        "        return self._generations[0][0] + 2 * self.timeout if",
    ),
    Mutant(
        "count the time of a message that is delivered anew from the first time on",
        _LEVEL,
        "            self.ages.forget(taken)\n",
        "            pass\n",
    ),
    Mutant(
        "find late deliveries of a queue once",
        _TIMEOUTS,
        "            else:\n                self._timed(state)\n",
        "",
    ),
    Mutant(
        "find late deliveries of the first generation alone",
        _LEVEL,
        "            self.on_timed(self)\n",
        "            self.on_timed(self) if self.position == 0 else None\n",
    ),
    # -- delayed exchanges
    Mutant(
        "let messages wait for no time",
        _DELAYING,
        "            due = max(1, now - age + delay)\n",
        "            due = max(1, now - age)\n",
    ),
    Mutant(
        "count a delay from the move into the schedule on",
        _DELAYING,
        "            due = max(1, now - age + delay)\n",
        "            due = max(1, now + delay)\n",
    ),
    Mutant(
        "let what has waited wait at each further exchange",
        _DELAYS,
        'told = [(name, b"%d" % -said if',
        'told = [(name, b"%d" % said if',
    ),
    Mutant(
        "let what says that it has waited wait",
        _DELAYS,
        "    return min(LONGEST, max(0, _milliseconds(headers)) * _MILLISECOND)",
        "    return min(LONGEST, abs(_milliseconds(headers)) * _MILLISECOND)",
    ),
    Mutant(
        "let what is due go on to where it went when it came",
        _FOLD,
        "            if waits and each.settings.delayed:\n",
        "            if waits and each.settings.delayed and each is exchange:\n",
    ),
    Mutant(
        "refuse what is due at a queue that has too much",
        _DUE,
        "self._ways, is_ours=True)",
        "self._ways)",
    ),
    Mutant(
        "not note that what was due is over",
        _DUE,
        "Unsent(runs), self._ids)",
        "Unsent(runs), [])",
    ),
    Mutant(
        "delete an exchange at which messages of a transaction are to wait",
        _DECLARATIONS,
        '            self._check_free(f"exchange {name!r}", waiting.partition)\n',
        "            assert waiting is not None\n",
    ),
    Mutant(
        "leave after a start what was to be moved into the schedule",
        _DELAYING,
        "fold.queues.values() if each.has_waiting)\n",
        "fold.queues.values() if each.has_waiting and engine.next_lsn < 0)\n",
    ),
    Mutant(
        "leave in its queue what was moved into the schedule",
        _DELAYING,
        "        unsent = Unsent(runs, positions)\n",
        "        unsent = Unsent(runs, [])\n",
    ),
    Mutant(
        "say of the queues of what is to wait that clients may take from them",
        _REQUESTS,
        "        if queue.has_waiting:\n            raise UnknownQueue(",
        "        if False:\n            raise UnknownQueue(",
    ),
    # -- queues that are over, and that a transaction needs
    Mutant(
        "route to a queue that is over",
        _FOLD,
        "        if self.hidden:\n",
        "        if self.hidden and exchange.number == 0:\n",
    ),
    Mutant(
        "have a queue that is over for one that is there",
        _DECLARATIONS,
        " or name in self._fold.hidden else found",
        " else found",
    ),
    Mutant(
        "keep a queue that is over when no transaction needs it any more",
        _REQUESTS,
        "            return self._hidden[partition][0]\n",
        '            return ""\n',
    ),
)
