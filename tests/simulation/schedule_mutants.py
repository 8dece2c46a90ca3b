"""One-line faults in the schedule, which histories in which messages are due later must find."""

from __future__ import annotations

from typing import Final

from tests.simulation.mutants import Mutant

_FOLD, _TIMETABLE = "journal/folds/schedule.py", "journal/folds/timetable.py"
_SCHEDULE, _PLACING = "journal/schedule/schedule.py", "journal/schedule/placing.py"
_CANCELLING, _SEEING = "journal/schedule/cancelling.py", "journal/schedule/seeing.py"
_SCHEDULING = "txbroker/broker/schedule/scheduling.py"

SCHEDULE_MUTANTS: Final = (
    Mutant(
        "spin while a large commit is applied",
        _SCHEDULING,
        "            yield Until.IDLE\n",
        "            yield None\n",
    ),
    # -- what is over
    Mutant(
        "forget at a checkpoint what is over in the schedule",
        _FOLD,
        "        over, cancelled = (encode_pieces(each, self.begins) for each in (self.over, self.cancelled))\n",
        "        over, cancelled = [], encode_pieces(self.cancelled, self.begins)\n",
    ),
    Mutant(
        "not set the bits of what was due in a replay",
        _FOLD,
        "            self._end(chain(record.messages(), record.gone), record.at)\n",
        "            self._end(chain(record.messages(), record.gone) if lsn % 2 else record.gone, record.at)\n",
    ),
    Mutant(
        "place what is due, and tell no log where",
        _PLACING,
        "pack_places(Places(told, [number for number, _ in self.gone])",
        "pack_places(Places([(p, base + 1, some) for p, base, some in told], [])",
    ),
    Mutant(
        "leave the timetable out of a checkpoint",
        _FOLD,
        "            rows += [TimesRow(clock, *some) for some in timetable.rows(keep)]\n",
        "            rows += [TimesRow(clock, *some) for some in timetable.rows(keep)[:0]]\n",
    ),
    Mutant(
        "say that one message more has been seen than was",
        _SEEING,
        "        return min(offset + count, offsets.stop)\n",
        "        return min(offset + count + 1, offsets.stop)\n",
    ),
    Mutant(
        "let the logs of the schedule begin past what waits",
        _SCHEDULE,
        "            start, sealed = min(log.begins, log.seen), store.sealed_segments\n",
        "            start, sealed = log.seen, store.sealed_segments\n",
    ),
    Mutant(
        "forget what is over from the last one on, not from the first that waits",
        _FOLD,
        "            self._forget(self.first - KEPT)\n",
        "            self._forget(self.over.end - KEPT)\n",
    ),
    # -- what is taken back
    Mutant(
        "take a message back, and record nothing",
        _CANCELLING,
        "        schedule.engine.accept(Cancelled(taken, schedule.engine.now(), by))\n",
        "        schedule.fold.apply(0, Cancelled(taken, schedule.engine.now(), by), b'')\n",
    ),
    Mutant(
        "answer what is taken back before it is forced",
        "txbroker/broker/fetches/stepwise_answers.py",
        "            self._answers.put(session, end.value)\n",
        "            session.deliver(end.value)\n",
    ),
    Mutant(
        "forget at a checkpoint what prepared transactions take back",
        _FOLD,
        "        rows += [HeldRow(number, messages) for number, messages in self._held.items()]\n",
        "        rows[-1] = 0\n",
    ),
    Mutant(
        "place what a prepared transaction takes back",
        _SCHEDULE,
        "            if number in self.fold.holders:\n",
        "            if number in self.fold.holders and number < 0:\n",
    ),
    Mutant(
        "lose what was held when its transaction is rolled back",
        _SCHEDULE,
        "                table.add(now + LOOK_AGAIN, entry)\n",
        "                pass\n",
    ),
    Mutant(
        "take back what a rolled back transaction held",
        _FOLD,
        "            if self._held:\n                self._release(record)\n",
        "            if self._held:\n                self._end(self._release(record), record.at, cancelled=True)\n",
    ),
    Mutant(
        "not take back with a commit in one phase",
        _FOLD,
        "            if (record.settles and (taken := record.taken_back)) or (\n",
        "            if (\n",
    ),
    # -- when it is due
    Mutant(
        "place a message a millisecond early",
        _TIMETABLE,
        "        self._lay(-(-due // 1_000), entry)\n",
        "        self._lay(due // 1_000 - 1, entry)\n",
    ),
    Mutant(
        "let the time pass twice that the broker was stopped",
        _FOLD,
        "self.elapsed + max(0, wall - self.wall)",
        "self.elapsed + 2 * max(0, wall - self.wall)",
    ),
    Mutant(
        "not let the time pass that the broker was stopped",
        _FOLD,
        "self.elapsed + max(0, wall - self.wall)",
        "self.elapsed",
    ),
    Mutant(
        "count a jump of the wall clock as time stopped",
        _SCHEDULE,
        "        if abs(jump) >= JUMP and not engine.busy:\n",
        "        if jump > HOLD and not engine.busy:\n",
    ),
    Mutant(
        "set schedule time back if the wall clock was",
        _FOLD,
        "self.elapsed + max(0, wall - self.wall)",
        "self.elapsed + wall - self.wall",
    ),
    Mutant(
        "hold nothing after a jump of the wall clock",
        _SCHEDULE,
        "engine.accept(WallClockTold(wall, at, fold.holds or jump > HOLD))",
        "engine.accept(WallClockTold(wall, at, fold.holds))",
    ),
    Mutant(
        "forget at a checkpoint that what is due by the wall clock is held",
        _FOLD,
        "[ClockRow(self.elapsed, self.wall, self.holds)]",
        "[ClockRow(self.elapsed, self.wall, False)]",
    ),
    Mutant(
        "let what is held go until the next start",
        _SCHEDULE,
        "        engine.accept(WallClockTold(engine.clock.wall(), engine.now(), holds=False, by=by))\n",
        "        engine.accept(WallClockTold(engine.clock.wall(), engine.now(), True, by))\n"
        "        self.fold.holds = False\n",
    ),
    Mutant(
        "put what is due in the order in which it was sent",
        _TIMETABLE,
        "        heapq.heappush(self._ready, ms << ENTRY_BITS | entry)\n",
        "        heapq.heappush(self._ready, ms // SECOND * SECOND << ENTRY_BITS | entry)\n",
    ),
    # -- beside it
    Mutant(
        "not count what waits for a partition",
        _FOLD,
        "            self.targets[partition] = self.targets.get(partition, 0) + 1\n",
        "            pass\n",
    ),
    Mutant(
        "count for ever what has waited for a partition",
        _FOLD,
        "                self._count(log, offset, partition, -1)\n",
        "                pass\n",
    ),
    Mutant(
        "leave the first message of each further piece out of a list",
        _SCHEDULING,
        "_end_of(data, offset)",
        "_end_of(data, offset) + 1",
    ),
    Mutant(
        "place beside a large commit",
        _SCHEDULE,
        "        return not (self.engine.busy or self.engine.full or",
        "        return not (self.engine.full or",
    ),
)
