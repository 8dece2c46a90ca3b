"""One-line faults in the fold of groups, each of which :mod:`tests.folds.test_settlement_model` must find."""

from __future__ import annotations

from typing import Final

from tests.simulation.mutants import Mutant

_SETTLEMENT, _HOLDS = "journal/folds/settlement.py", "journal/folds/holds.py"
_GROUP, _GROUPS = "journal/folds/group.py", "journal/folds/groups.py"
_SET = "journal/offset_set.py"

MUTANTS: Final = (
    # -- what is finished
    Mutant(
        "not go on over finished offsets",
        _SETTLEMENT,
        "        position = self.finished.missing_from(position)\n",
        "        position = position\n",
    ),
    Mutant(
        "keep what is finished below the position",
        _SETTLEMENT,
        "        self.finished.discard_below(position)\n",
        "        pass\n",
    ),
    Mutant(
        "a position that goes back keeps what is finished above it",
        _GROUP,
        "                del self.settlements[partition]\n",
        "                pass\n",
    ),
    Mutant(
        "a position drops what is finished above it",
        _GROUP,
        "            if position < self.positions[partition][0]:\n",
        "            if position <= self.positions[partition][0]:\n",
    ),
    Mutant(
        "a position keeps details below it",
        _SETTLEMENT,
        "            self._forget_details(self._detailed.within(0, offset))\n",
        "            pass\n",
    ),
    Mutant(
        "a position drops details of its own offset",
        _SETTLEMENT,
        "self._detailed.within(0, offset)",
        "self._detailed.within(0, offset + 1)",
    ),
    Mutant(
        "a position stays below the start of the log",
        _SETTLEMENT,
        "        if settled.start > position:\n            position = self.finish_below(settled.start)\n",
        "",
    ),
    Mutant(
        "the start of the log sets a position back",
        _SETTLEMENT,
        "        if settled.start > position:\n",
        "        if settled.start:\n",
    ),
    Mutant(
        "a base moves a position",
        _SETTLEMENT,
        "        if settled.start > position:\n            position = self.finish_below(settled.start)\n",
        "        if settled.base > position:\n            position = self.finish_below(settled.base)\n",
    ),
    Mutant(
        "a group begins at the start of the log whatever its reader says",
        _GROUP,
        'self.positions.get(partition, (settled.base, ""))',
        'self.positions.get(partition, (settled.start, ""))',
    ),
    Mutant(
        "settling drops the metadata of the position",
        _GROUP,
        "(settlement.settle(position, settled), metadata)",
        '(settlement.settle(position, settled), "")',
    ),
    Mutant(
        "keep the details of what is finished",
        _SETTLEMENT,
        "                del self.unfinished[offset]\n",
        "                pass\n",
    ),
    Mutant(
        "know details of offsets whose details were dropped",
        _SETTLEMENT,
        "        self._detailed.difference_update(offsets)\n",
        "        pass\n",
    ),
    Mutant(
        "not know of which offsets there are details",
        _SETTLEMENT,
        "            self._detailed.add(offset)\n        elif",
        "            pass\n        elif",
    ),
    Mutant(
        "not know after a start of which offsets there are details",
        _SETTLEMENT,
        "        for offset in self.unfinished:\n            self._detailed.add(offset)\n",
        "",
    ),
    Mutant(
        "what is unfinished again stays finished",
        _SETTLEMENT,
        "        self.finished.discard(offset)\n        if offset < position:",
        "        if offset < position:",
    ),
    Mutant(
        "what is unfinished again below the position is not found",
        _SETTLEMENT,
        "            position = offset\n",
        "            pass\n",
    ),
    Mutant(
        "what lies between it and the position is unfinished, too",
        _SETTLEMENT,
        "            self.finished.add_range(offset + 1, position)\n",
        "",
    ),
    Mutant(
        "keep details that say nothing",
        _SETTLEMENT,
        "        if each.has_details:\n",
        "        if True:\n",
    ),
    Mutant(
        "details that say nothing leave the older ones",
        _SETTLEMENT,
        "        elif self.unfinished.pop(offset, None):\n",
        "        elif False:\n",
    ),
    Mutant(
        "keep a settlement that says nothing",
        _GROUP,
        "        if settlement:\n            self.settlements[partition] = settlement\n",
        "        if True:\n            self.settlements[partition] = settlement\n",
    ),
    Mutant(
        "a claim forgets what was settled with it",
        _GROUPS,
        "        self._settle(record.group, group, record.settled)\n",
        "",
    ),
    Mutant(
        "settle in the wrong place of a bitmap",
        _SET,
        "                chunks[number] = _FULL if chunk == _FULL else chunk\n",
        "                chunks[number + 1] = _FULL if chunk == _FULL else chunk\n",
    ),
    Mutant(
        "runs stop at the end of a bitmap",
        _SET,
        "            if place + run < CHUNK:\n",
        "            if place + run <= CHUNK:\n",
    ),
    # -- what is held
    Mutant(
        "two transactions hold the position",
        _GROUPS,
        "        if reach.below and held.below:  # both",
        "        if False:  # both",
    ),
    Mutant(
        "name who holds the next message for who moves the position",
        _GROUPS,
        "            return PendingOffset(name, partition, self.find(name).position(partition) or 0, held.mover)\n",
        "            offset = self.find(name).position(partition) or 0\n"
        "            return PendingOffset(name, partition, offset, self._holder_of(held, name, partition, offset))\n",
    ),
    Mutant(
        "two transactions hold one offset",
        _HOLDS,
        "        found = [self.offsets.common(reach.offsets)]\n",
        "        found = [None]\n",
    ),
    Mutant(
        "a position passes held offsets",
        _HOLDS,
        "        if reach.below and self.offsets and self.offsets.first < reach.below:\n",
        "        if False:\n",
    ),
    Mutant(
        "finish what a prepared position will finish",
        _HOLDS,
        "        if reach.offsets and reach.offsets.first < self.below:\n",
        "        if False:\n",
    ),
    Mutant(
        "a position that goes back holds what is below it",
        _HOLDS,
        "    elif len(offsets) == 1 and not settled and offsets[0].offset > position:\n",
        "    elif len(offsets) == 1 and not settled:\n",
    ),
    Mutant(
        "the same position again holds nothing above it",
        _HOLDS,
        "offsets[0].offset > position:\n",
        "offsets[0].offset >= position:\n",
    ),
    Mutant(
        "of several positions the first is held",
        _HOLDS,
        "    elif len(offsets) == 1 and not settled and",
        "    elif not settled and",
    ),
    Mutant(
        "of a position and offsets the position is held",
        _HOLDS,
        "    elif len(offsets) == 1 and not settled and",
        "    elif len(offsets) == 1 and",
    ),
    Mutant(
        "the first position of a group is held by many",
        _HOLDS,
        "    if position is None:\n        below = EVERYTHING\n",
        "    if position is None:\n        below = max([start, *(each.offset for each in offsets)])\n",
    ),
    Mutant(
        "the start of the log holds nothing",
        _HOLDS,
        "        below = start\n",
        "        below = 0\n",
    ),
    Mutant(
        "what says nothing holds nothing",
        _HOLDS,
        "            touched.add(each.base)",
        "            pass",
    ),
    Mutant(
        "unfinished offsets are not held",
        _HOLDS,
        "            touched.add(unfinished.offset)\n",
        "            pass\n",
    ),
    Mutant(
        "hold offsets after the outcome",
        _HOLDS,
        "        self.offsets.difference_update(reach.offsets)\n",
        "",
    ),
    Mutant(
        "hold the position after the outcome",
        _HOLDS,
        "            self.below, self.mover = 0, None\n",
        "            pass\n",
    ),
    Mutant(
        "any outcome lets the position go",
        _HOLDS,
        "        if self.mover == number:\n",
        "        if True:\n",
    ),
    Mutant(
        "name another holder",
        _GROUPS,
        "            if reach is not None and offset in reach.offsets:\n",
        "            if reach is not None:\n",
    ),
    Mutant(
        "judge a decision without what was staged",
        _GROUPS,
        "            positions = [*self.staged(number), *positions]\n        for",
        "            positions = list(positions)\n        for",
    ),
    Mutant(
        "apply a plain commit that touches what is held",
        _GROUPS,
        "        if self._held:\n            self._assert_free([GroupPositions(record.group, record.id, record.offsets",
        "        if False:\n            self._assert_free([GroupPositions(record.group, record.id, record.offsets",
    ),
    Mutant(
        "apply a claim that settles what is held",
        _GROUPS,
        "        if self._held and record.settled:\n",
        "        if False:\n",
    ),
    Mutant(
        "prepare what another one holds",
        _GROUPS,
        "        if self._held:\n            self._assert_free(self._staged[number])\n",
        "",
    ),
    Mutant(
        "commit what another one holds",
        _GROUPS,
        "        if positions and self._held:\n            self._assert_free(positions)\n",
        "",
    ),
    Mutant(
        "delete a group of which offsets are held",
        _GROUPS,
        "        assert record.group not in self._held, f",
        "        assert True, f",
    ),
    # -- settings
    Mutant(
        "settings are not taken",
        _GROUPS,
        "        group.settings, group.used = record.settings, record.at\n",
        "        group.used = record.at\n",
    ),
    Mutant(
        "settings make no group",
        _GROUPS,
        "        group = self._group(record.group, record.id)\n        group.settings,",
        "        group = self.find(record.group)\n        group.settings,",
    ),
    Mutant(
        "the first settings stay",
        _GROUPS,
        "group.settings, group.used = record.settings, record.at\n",
        "group.settings = group.settings if group.settings.retry else record.settings\n",
    ),
    Mutant(
        "settings are not removed",
        _GROUPS,
        "group.settings, group.used = record.settings, record.at\n",
        "group.settings = record.settings if record.settings.retry else group.settings\n",
    ),
    Mutant(
        "a snapshot has no settings",
        _GROUP,
        "claims, settings=group.settings, used=group.used)\n",
        "claims, used=group.used)\n",
    ),
    Mutant(
        "a snapshot with settled offsets has no settings",
        _GROUP,
        "replace(self.row, settlements=settlements)\n",
        "replace(self.row, settlements=settlements, settings=NO_SETTINGS)\n",
    ),
    Mutant(
        "a restored group has no settings",
        _GROUP,
        "    group.settings, group.used = row.settings, row.used\n",
        "",
    ),
    # -- topics, starts, checkpoints
    Mutant(
        "a deleted topic leaves settlements",
        _GROUPS,
        "                group.settlements.pop(partition, None)\n",
        "",
    ),
    Mutant(
        "a deleted topic leaves holds",
        _GROUPS,
        "                self._let_go(name, partition)\n        for number, positions",
        "                pass\n        for number, positions",
    ),
    Mutant(
        "a deleted topic leaves what is staged",
        _GROUPS,
        "            self._staged[number] = _without(positions, gone)\n",
        "            pass\n",
    ),
    Mutant(
        "a start keeps what active transactions staged",
        _GROUPS,
        "for n, positions in self._staged.items() if n in self._prepared}",
        "for n, positions in self._staged.items()}",
    ),
    Mutant(
        "a restored fold holds nothing",
        _GROUPS,
        "            if row.prepared:\n                self._hold(number)\n",
        "",
    ),
    Mutant(
        "a checkpoint has prepared transactions in the order in which they began",
        _GROUPS,
        "        for number in [*self._prepared, *active]:\n",
        "        for number in self._staged:\n",
    ),
    Mutant(
        "a checkpoint has what is finished later",
        _SETTLEMENT,
        "        copy = Settlement(self.finished.copy())\n",
        "        copy = Settlement(self.finished)\n",
    ),
    Mutant(
        "a checkpoint has details that come later",
        _SETTLEMENT,
        "copy._detailed = self.unfinished.copy(), self._detailed.copy()",
        "copy._detailed = self.unfinished, self._detailed.copy()",
    ),
    Mutant(
        "a checkpoint has positions only",
        _GROUP,
        "[(p, group.positions[p][0], each.copy()) for p, each in group.settlements.items()])\n",
        "[])\n",
    ),
    Mutant(
        "count a pair for each settlement",
        _GROUPS,
        "            self.pairs += each.partition not in group\n            group.settle(each)",
        "            self.pairs += 1\n            group.settle(each)",
    ),
)
