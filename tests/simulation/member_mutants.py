"""One-line faults in how members share partitions and finish messages, which histories with members must find."""

from __future__ import annotations

from typing import Final

from tests.simulation.mutants import Mutant

_COORDINATOR, _TABLE = "txbroker/members/coordinator.py", "txbroker/members/group_table.py"
_CLAIMING = "txbroker/members/claiming.py"
_LOST = "txbroker/groups/claim_settlement.py"
_CONSUMING = "txbroker/broker/groups/consumer_groups.py"
_FOLD, _GROUP = "journal/folds/groups.py", "journal/folds/group.py"

MEMBER_MUTANTS: Final = (
    # -- claims
    Mutant(
        "tell a member of its claim before that is forced",
        _COORDINATOR,
        "            self._answer(member.session, encode(answer))\n",
        "            member.session.deliver(encode(answer))\n",
    ),
    Mutant(
        "claim with the generation of the last claim",
        _CLAIMING,
        "        generation = self._groups.last_generation + 1\n",
        "        generation = max(self._groups.last_generation, 1)\n",
    ),
    Mutant(
        "begin where the log ends",
        _CLAIMING,
        "            case _:\n                offset = store.start_offset\n",
        "            case _:\n                offset = store.high_watermark\n",
    ),
    Mutant(
        "give a partition back to whoever shows any generation of it",
        _COORDINATOR,
        "claim.generation == generation and number not in table.owners",
        "number not in table.owners",
    ),
    # -- what was being handled
    Mutant(
        "finish what a lost member was handling",
        _LOST,
        "        if not retried and not unfinished:\n            return None\n",
        "        if retried:\n"
        "            first = next(iter(retried))\n"
        "            return replace(wanted, base=first, finished=bytes((2, 1)))\n"
        "        if not unfinished:\n            return None\n",
    ),
    Mutant(
        "count an attempt of each of a batch",
        _LOST,
        "if not work.together:",
        "if True:",
    ),
    # -- hand-over
    Mutant(
        "not tell a member what it has lost",
        _COORDINATOR,
        "        lost = [number for number, generation in shown.items() if owned.get(number) != generation]\n",
        "        lost = []\n",
    ),
    Mutant(
        "leave what a member does not release with it",
        _COORDINATOR,
        "        for number in table.overdue(now):\n",
        "        for number in []:\n",
    ),
    Mutant(
        "not look at a partition that was released",
        _TABLE,
        "            member.asked.pop(number, None)\n            self.to_place[number] = None\n",
        "            member.asked.pop(number, None)\n",
    ),
    Mutant(
        "keep partitions for static members for ever",
        _TABLE,
        "        if self.kept and self._kept_until <= now:\n",
        "        if self.kept and self._kept_until <= 0:\n",
    ),
    Mutant(
        "let a member that has gone keep its part of the assignment",
        _COORDINATOR,
        "member.name))\n        self._assign_by(table, now)\n",
        "member.name))\n",
    ),
    Mutant(
        "not lose a member whose connection is gone",
        _COORDINATOR,
        "            member.session, member.waiting, member.heard = None, None, now\n",
        "            member.session, member.waiting, member.heard = None, None, NEVER\n",
    ),
    # -- what members finish
    Mutant(
        "let every generation finish messages",
        _FOLD,
        "        if offset.generation == current:\n",
        "        if offset.generation or not current:\n",
    ),
    Mutant(
        "forget claims at a checkpoint",
        _GROUP,
        "    claims = [(partition, *value) for partition, value in group.claims.items()]\n",
        "    claims = []\n",
    ),
    Mutant(
        "forget the last generation at a checkpoint",
        _FOLD,
        "[HeadRow(self.last_generation, ",
        "[HeadRow(0, ",
    ),
    Mutant(
        "forget single finished messages at a checkpoint",
        _GROUP,
        "    if not group.settlements:\n        return row\n",
        "    if group is not None:\n        return row\n",
    ),
    Mutant(
        "not finish single messages with a transaction",
        _FOLD,
        "            self._move(each.group, each.id, each.offsets, each.settled, record.at)\n        self._session = 0",
        "            self._move(each.group, each.id, each.offsets, [], record.at)\n        self._session = 0",
    ),
    Mutant(
        "hold only positions, and no single messages, of what is prepared",
        _FOLD,
        "            if reach.below or reach.offsets:\n",
        "            if reach.below:\n",
    ),
    Mutant(
        "finish single messages of a transaction that is rolled back",
        _FOLD,
        "    def _roll_back(self, record: TransactionRolledBack) -> None:\n"
        "        self._release(TransactionNumber(record.session, record.serial))\n",
        "    def _roll_back(self, record: TransactionRolledBack) -> None:\n"
        "        for each in self._release(TransactionNumber(record.session, record.serial)):\n"
        "            self._move(each.group, each.id, [], each.settled)\n",
    ),
    Mutant(
        "read on for a group whose partition is another's",
        "txbroker/groups/group_position.py",
        "            self._groups.check_generation(self.group, self._generation)\n",
        "            pass\n",
    ),
    Mutant(
        "judge positions by their generation when they are staged, and not when they are prepared",
        _CONSUMING,
        "            for offset in each.offsets:\n                self._groups.check_generation(each.group, offset)\n",
        "",
    ),
    Mutant(
        "judge single messages by their generation when they are staged, and not when they are prepared",
        _CONSUMING,
        "            for settled in each.settled:\n"
        "                self._groups.check_generation(each.group, settled)\n",
        "",
    ),
    Mutant(
        "not judge positions that come with a prepare by their generation",
        _CONSUMING,
        "                )\n            self._groups.check_generation(name, offset)\n",
        "                )\n",
    ),
)
