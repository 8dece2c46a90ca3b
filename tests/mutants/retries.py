"""Faults in what becomes of messages that are tried again, each of which its tests must find."""

from __future__ import annotations

from typing import Final

from tests.simulation.mutants import Mutant

_BROKER, _POSITION = "txbroker/groups/retries.py", "txbroker/groups/group_position.py"
_JUDGE = "txbroker/groups/settlement_judge.py"
_DEAD, _SETTINGS = "txbroker/groups/dead_letters.py", "txbroker/groups/group_settings.py"
_RETRIES, _LEFT = "txbroker/client/consumer/retries.py", "txbroker/client/core/left_out.py"
_CONSUMER, _PARTS = "txbroker/client/consumer/consumer.py", "txbroker/client/consumer/group_parts.py"
_FETCH = "txbroker/client/consumer/consumer_fetch.py"
_COMMITS = "txbroker/client/consumer/commits.py"
_DELIVERY, _RECEIVER = "txbroker/client/consumer/delivery.py", "txbroker/client/consumer/receiver.py"

TESTS: Final = (
    "tests/groups/test_retries.py",
    "tests/groups/test_retry_rules.py",
    "tests/groups/test_dead_letters.py",
    "tests/client/core/test_left_out.py",
    "tests/client/consumer/against_broker/test_retrying.py",
    "tests/client/consumer/test_retry_histories.py",
)
"""What must find them."""

MUTANTS: Final = (
    # -- the broker
    Mutant("a repetition is counted", _BROKER, "each.attempts < known.attempts", "each.attempts < 0"),
    Mutant(
        "a new failure is none", _BROKER, "each.attempts < known.attempts", "each.attempts <= known.attempts"
    ),
    Mutant("the client's count is believed", _BROKER, "known.attempts + 1", "each.attempts + 1"),
    Mutant("it is due by the client's clock", _BROKER, "now + self._pause(each", "self._pause(each"),
    Mutant("what is finished comes back", _BROKER, "if each.attempts and is", "if False and is"),
    Mutant(
        "a request may state counts",
        _BROKER,
        "if any(each.unfinished for",
        "if False and any(each.unfinished for",
    ),
    Mutant(
        "attempts are told of what waits",
        _POSITION,
        "if each.offset not in waiting",
        "if each.offset",
    ),
    # -- the rules
    Mutant("the last attempt is none", _BROKER, "attempts >= rules.attempts", "attempts > rules.attempts"),
    Mutant(
        "a repetition of the last attempt is refused",
        _BROKER,
        "(each.dead or is_last) and is",
        "each.dead and is",
    ),
    Mutant(
        "what is dropped comes again",
        _JUDGE,
        "                finished.add(offset)\n",
        "                pass\n",
    ),
    Mutant(
        "a pause is said in vain", _BROKER, "if pause is None and rules is not None", "if rules is not None"
    ),
    Mutant("the pause stays as long", _BROKER, "min(attempts - 1, MAX_DOUBLINGS)", "0"),
    Mutant("all come again together", _BROKER, "int.from_bytes(self._random(2))", "0"),
    Mutant("there is no longest pause", _BROKER, "min(rules.longest, ", "max(0, "),
    Mutant(
        "dead letters that fail go nowhere",
        _BROKER,
        " and has_target(store, group) else STOPPED",
        " else STOPPED",
    ),
    Mutant(
        "a stopped message is due",
        _BROKER,
        " and has_target(store, group) else STOPPED",
        " and has_target(store, group) else now",
    ),
    Mutant("others are taken for the same", _SETTINGS, "there not in (none, wanted)", "False"),
    Mutant(
        "the usual rules replace others",
        _SETTINGS,
        "command.whether is Whether.NONE:",
        "command.whether is None:",
    ),
    # -- dead letters
    Mutant(
        "a letter is moved whatever has changed", _DEAD, "self._details(letter) != details or", "False or"
    ),
    Mutant("a letter that cannot be moved is forgotten", _DEAD, "        self.obstacles[letter] = why\n", ""),
    Mutant(
        "the letters of an earlier start are forgotten",
        _DEAD,
        "        self._next.update(dict.fromkeys(self._found()))\n",
        "",
    ),
    Mutant("the source is not finished", _DEAD, "Unsent(runs, positions)", "Unsent(runs, [])"),
    Mutant("a full disk is filled", _DEAD, "        elif engine.full:\n", "        elif False:\n"),
    Mutant("all letters go to the first partition", _DEAD, "store.index % len(taking)", "0"),
    Mutant("one whose retry is counted is not given up", _BROKER, "known.is_dead or not each.dead", "True"),
    Mutant("retention asks nobody", _DEAD, "lowest = min(lowest, failed[0].offset)", "pass"),
    Mutant(
        "retention gives nothing up", _DEAD, "                    self._give_up(name, store, failed)\n", ""
    ),
    Mutant("dead letters have dead letters", _BROKER, "if is_dead_topic(store.topic):", "if False:"),
    # -- the client
    Mutant("a run that is read again overtakes", _LEFT, "offsets[place] >= offset", "True"),
    Mutant(
        "what has come since is not seen",
        _LEFT,
        "        self._keys[offset] = key\n        self._lanes = None\n",
        "        self._keys[offset] = key\n",
    ),
    Mutant("by partition each key goes alone", _LEFT, 'b"" if self.order == "partition" else key', "key"),
    Mutant(
        "what was handed out counts as finished",
        _RETRIES,
        "        position.given.discard(each.offset)\n",
        "",
    ),
    Mutant("it is not left out", _RETRIES, "position.left.park(message.offset, message.key)", "pass"),
    Mutant(
        "what was read of the partition goes on",
        _RETRIES,
        "        drop_undelivered(position, returned, ahead)\n",
        "        pass\n",
    ),
    Mutant(
        "what was read of the key goes on",
        _RETRIES,
        "each.offset, each.key, returned",
        "each.offset, None, returned",
    ),
    Mutant(
        "one that is retried twice comes twice",
        _RETRIES,
        "    elif messages and messages[0].offset <= offset <= messages[-1].offset:\n",
        "    elif False:\n",
    ),
    Mutant(
        "a later run overtakes one that has ended early",
        _PARTS,
        "                ended.add(part.partition)\n",
        "                pass\n",
    ),
    Mutant(
        "a delivery of nothing is handed out",
        _RETRIES,
        "            if not kept:\n                del ahead.chunks[place]\n",
        "",
    ),
    Mutant(
        "a refused one stays left out",
        _RETRIES,
        "            each.position.left.taken([each.said.offset])\n",
        "",
    ),
    Mutant(
        "a refused one is not finished",
        _RETRIES,
        "            each.position.given.add(each.said.offset)\n",
        "            pass\n",
    ),
    Mutant("a rolled back one is left out", _RETRIES, "        if committed:\n", "        if True:\n"),
    Mutant("what was read after a stop is lost", _RETRIES, "    position.next = following\n", "    pass\n"),
    Mutant(
        "it waits with what it has not been told",
        _LEFT,
        "            missing.discard(offset)\n",
        "            pass\n",
    ),
    Mutant(
        "an answer frees what it was not asked",
        _LEFT,
        "        gone = missing.copy()\n",
        "        gone = self.waiting.copy()\n",
    ),
    Mutant(
        "a later one overtakes it when it is due",
        _LEFT,
        '                if self.order == "partition":\n                    break\n',
        "",
    ),
    Mutant(
        "the partition goes on meanwhile",
        _LEFT,
        'return self.order == "partition" and bool(self)',
        "return False",
    ),
    Mutant(
        "a position finishes it",
        _DELIVERY,
        'if not position.has_gaps and position.left.order == "partition"',
        'if position.left.order == "partition"',
    ),
    Mutant(
        "the iteration goes on with what was taken away",
        _DELIVERY,
        "        self.withhold()\n        self.messages, ",
        "        self.messages, ",
    ),
    Mutant(
        "a received one is finished, too",
        _RECEIVER,
        "if (position.number, offset) not in self._retries:",
        "if True:",
    ),
    Mutant(
        "a received one does not come again",
        _RECEIVER,
        "            self._consumer.park(self._retries.values())\n",
        "",
    ),
    Mutant(
        "a rolled back transaction's are parked by the next",
        _RECEIVER,
        "        self._retries.clear()\n        self.owner = None\n        self.discarded = self._fenced",
        "        self.owner = None\n        self.discarded = self._fenced",
    ),
    Mutant("attempts are not told", _FETCH, "pieces, dict(part.attempts)", "pieces, {}"),
    Mutant(
        "it asks without end while the answer is awaited",
        _FETCH,
        "        if not asked:\n            return None\n",
        "        if not asked:\n            return []\n",
    ),
    Mutant(
        "a commit finishes what a transaction tries again",
        _COMMITS,
        "    given.difference_update(position.retrying)\n",
        "",
    ),
    Mutant(
        "after a rollback no commit finishes what was to be tried again",
        _RETRIES,
        "            each.position.retrying.discard(each.said.offset)\n",
        "            pass\n",
    ),
)
