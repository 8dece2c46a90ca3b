"""One-line faults in the coordinator of members, each of which :mod:`tests.members.members_model` or
:mod:`tests.members.test_coordinator` must find.
"""

from __future__ import annotations

from typing import Final

from tests.simulation.mutants import Mutant

_COORDINATOR, _TABLE = "txbroker/members/coordinator.py", "txbroker/members/group_table.py"
_ASSIGNMENT = "txbroker/members/assignment.py"
_CLAIMING, _GROUPS = "txbroker/members/claiming.py", "txbroker/broker/groups/consumer_groups.py"

MUTANTS: Final = (
    # -- who is a member
    Mutant(
        "a repeated join is another member",
        _COORDINATOR,
        "known = table.by_nonce(command.nonce) if table is not None else None",
        "known = None",
    ),
    Mutant(
        "a living name is given to another one",
        _COORDINATOR,
        "        if namesake is not None and namesake.session is not None:\n",
        "        if namesake is None and namesake is not None:\n",
    ),
    Mutant(
        "a name stays with the member whose connection is gone",
        _COORDINATOR,
        "        if namesake is not None and namesake.session is not None:\n",
        "        if namesake is not None:\n",
    ),
    Mutant(
        "the one that had a name stays a member",
        _COORDINATOR,
        "            self._remove(table, namesake)\n",
        "            pass\n",
    ),
    Mutant("any secret will do", _COORDINATOR, " and member.secret.is_same(secret) else", " else"),
    Mutant(
        "groups that are claimed by name take members",
        _COORDINATOR,
        "        if not self._groups.find(group).may_be_claimed(ClaimKind.MEMBER):\n",
        "        if not self._groups.find(group).may_be_claimed(ClaimKind.MEMBER) and not group:\n",
    ),
    # -- who is lost
    Mutant(
        "a silent member is never lost",
        _COORDINATOR,
        "            if member.session is not None and (member.session.parked or not member.session.is_read()):\n",
        "            if member.session is not None:\n",
    ),
    Mutant(
        "a member is lost though its socket is not read",
        _COORDINATOR,
        "            if member.session is not None and (member.session.parked or not member.session.is_read()):\n",
        "            if member.session is None and member.session is not None:\n",
    ),
    Mutant(
        "a member is lost though its requests wait",
        _COORDINATOR,
        "(member.session.parked or not member.session.is_read())",
        "not member.session.is_read()",
    ),
    Mutant(
        "nothing that a member says is heard",
        _COORDINATOR,
        "            member.client, member.peer = session.client, session.peer\n        member.heard = now\n",
        "            member.client, member.peer = session.client, session.peer\n",
    ),
    Mutant(
        "the grace begins when the member was heard of last",
        _COORDINATOR,
        "            member.session, member.waiting, member.heard = None, None, now\n",
        "            member.session, member.waiting = None, None\n",
    ),
    Mutant(
        "a lost connection is not taken note of",
        _COORDINATOR,
        "        for member in list(session.members):\n",
        "        for member in []:\n",
    ),
    Mutant(
        "a session that is left behind takes the member with it",
        _COORDINATOR,
        "                before.members.pop(member, None)\n",
        "                pass\n",
    ),
    Mutant(
        "nothing is planned when a connection is lost",
        _COORDINATOR,
        "            self._arm(member.group, member.lost_at(self._settings.reconnect_grace))\n",
        "            pass\n",
    ),
    Mutant(
        "the broker's own delay counts",
        _COORDINATOR,
        "                member.heard += now - planned + HEARING\n",
        "                pass\n",
    ),
    Mutant(
        "no member is heard after a delay",
        _COORDINATOR,
        "                member.heard += now - planned + HEARING\n",
        "                member.heard += now - planned\n",
    ),
    Mutant(
        "a session that was lost goes on with its request",
        _COORDINATOR,
        "        if not session.is_open:\n            return\n        now",
        "        now",
    ),
    # -- hand-over
    Mutant(
        "what is not shown is not released",
        _COORDINATOR,
        "        released = [each for each in member.asked if each not in member.shown and each not in told]\n",
        "        released = []\n",
    ),
    Mutant(
        "what is shown is released",
        _COORDINATOR,
        "        released = [each for each in member.asked if each not in member.shown and each not in told]\n",
        "        released = [each for each in member.asked if each not in told]\n",
    ),
    Mutant(
        "a request releases what its answer has crossed",
        _COORDINATOR,
        "each not in member.shown and each not in told]",
        "each not in member.shown]",
    ),
    Mutant(
        "what was not asked for is released",
        _COORDINATOR,
        "        released = [each for each in member.asked if",
        "        released = [each for each in list(member.owned) if",
    ),
    Mutant(
        "nothing is taken from a member that does not release it",
        _COORDINATOR,
        "        for number in table.overdue(now):\n",
        "        for number in []:\n",
    ),
    Mutant(
        "a partition is claimed before its owner has released it",
        _TABLE,
        "                owner.asked.setdefault(number, now + owner.max_handover)\n",
        "                owner.asked.setdefault(number, now)\n",
    ),
    Mutant(
        "asking again gives more time",
        _TABLE,
        "                owner.asked.setdefault(number, now + owner.max_handover)\n",
        "                owner.asked[number] = now + 9 * owner.max_handover\n",
    ),
    Mutant(
        "what its owner is to have again stays asked for",
        _TABLE,
        "            elif owner is wanted:\n                owner.asked.pop(number, None)\n",
        "            elif owner is wanted:\n                pass\n",
    ),
    Mutant(
        "a released partition is looked at by nobody",
        _TABLE,
        "            member.asked.pop(number, None)\n            self.to_place[number] = None\n",
        "            member.asked.pop(number, None)\n",
    ),
    # -- what is kept
    Mutant(
        "nothing is kept for a static member",
        _COORDINATOR,
        "        if member.name and not for_good:\n",
        "        if not member.name and not for_good and member.name:\n",
    ),
    Mutant(
        "what a member leaves for good is kept",
        _COORDINATOR,
        "        if member.name and not for_good:\n",
        "        if member.name:\n",
    ),
    Mutant(
        "what is kept is claimed by anybody",
        _TABLE,
        "        return kept is not None and kept.until > now and not (kept.name and kept.name == wanted.name)",
        "        return False",
    ),
    Mutant(
        "what is kept for a name is kept from it, too",
        _TABLE,
        " and not (kept.name and kept.name == wanted.name)",
        "",
    ),
    Mutant(
        "what is kept after a restart is anybody's without a name",
        _TABLE,
        "not (kept.name and kept.name == wanted.name)",
        "not kept.name == wanted.name",
    ),
    Mutant(
        "kept partitions are shared out as nobody's",
        _TABLE,
        "        return kept | {",
        "        return {",
    ),
    Mutant(
        "it is kept for ever",
        _TABLE,
        "        if self.kept and self._kept_until <= now:\n",
        "        if self.kept and self._kept_until <= 0:\n",
    ),
    Mutant(
        "what was kept is looked at by nobody",
        _TABLE,
        "                del self.kept[number]\n                self.to_place[number] = None\n",
        "                del self.kept[number]\n",
    ),
    Mutant(
        "what was kept last says until when",
        _TABLE,
        "            self._kept_until = min((kept.until for kept in self.kept.values()), default=0)\n",
        "            self._kept_until = 1 << 60\n",
    ),
    Mutant(
        "claims before a start are free at once",
        _COORDINATOR,
        "                table.keep(numbers, Kept(until, name))\n",
        "                pass\n",
    ),
    Mutant(
        "the names of static members are forgotten by a start",
        _COORDINATOR,
        'claim.member if claim.kind is ClaimKind.STATIC_MEMBER else ""',
        '""',
    ),
    Mutant(
        "a deleted group keeps for its members",
        _COORDINATOR,
        "        table = self.tables.pop(group, None)\n        if table is None:\n",
        "        table = self.tables.get(group)\n        if table is None or not table.members:\n",
    ),
    # -- groups that are stopped
    Mutant(
        "members of a stopped group go on",
        _GROUPS,
        "self._made(name, command.id)))\n        self.end_memberships(name)\n",
        "self._made(name, command.id)))\n",
    ),
    Mutant(
        "members of a deleted group go on",
        _GROUPS,
        "        self.end_memberships(command.group)\n",
        "",
    ),
    Mutant(
        "members of a stopped group are told nothing",
        _COORDINATOR,
        "            self._dismiss(member)\n        if table.members:\n",
        "            pass\n        if table.members:\n",
    ),
    Mutant(
        "what is shown after a stop is given back",
        _GROUPS,
        "        self._fence(name, command.id, session.client, [each.partition for each in offsets])\n",
        "",
    ),
    Mutant(
        "only what is moved is fenced",
        _GROUPS,
        "sorted({*claims, *moved})",
        "sorted({*moved})",
    ),
    Mutant(
        "what is moved and not claimed is not fenced",
        _GROUPS,
        "sorted({*claims, *moved})",
        "sorted({*claims})",
    ),
    Mutant(
        "members that have claimed nothing are not fenced",
        _GROUPS,
        "        if claim is None and not self.count_members(name):\n",
        "        if claim is None:\n",
    ),
    Mutant(
        "a group that nobody reads for is claimed",
        _GROUPS,
        "        if claim is None and not self.count_members(name):\n            return\n",
        "",
    ),
    Mutant(
        "a stop makes consumers that name their partitions members",
        _GROUPS,
        "kind = ClaimKind.MEMBER if is_for_members else ClaimKind.CONSUMER",
        "kind = ClaimKind.MEMBER",
    ),
    Mutant(
        "a prepared transaction does not refuse a stop",
        _GROUPS,
        "        self._engine.transactions.check_unheld([GroupPositions(name, command.id, offsets)])\n",
        "",
    ),
    Mutant(
        "a stop is not judged",
        _GROUPS,
        "        self.judge(name, command.id, offsets)\n        self._engine",
        "        self._engine",
    ),
    Mutant(
        "positions that nobody has are not compared by a stop",
        _GROUPS,
        "self._check_expected(name, offsets, command.expected, only_unclaimed=True)",
        "len(command.expected)",
    ),
    Mutant(
        "positions that members move refuse a stop",
        _GROUPS,
        "command.expected, only_unclaimed=True)",
        "command.expected)",
    ),
    Mutant(
        "members are stopped for any commit",
        _GROUPS,
        "        if command.expected is None or command.settled:\n",
        "        if command.expected is None:\n",
    ),
    Mutant(
        "the move has the generation from before",
        _GROUPS,
        "moved = [replace(each, generation=group.generation(each.partition)) for each in offsets]",
        "moved = [replace(each, generation=each.generation) for each in offsets]",
    ),
    Mutant(
        "groups with members are moved and deleted without a stop",
        _GROUPS,
        "        count = self.count_members(name)\n        if count:\n",
        "        count = 0\n        if count:\n",
    ),
    # -- what is shown after a start
    Mutant(
        "any generation takes a partition back",
        _COORDINATOR,
        "claim.generation == generation and number not in table.owners",
        "number not in table.owners",
    ),
    Mutant(
        "what another has is taken back",
        _COORDINATOR,
        "claim.generation == generation and number not in table.owners",
        "claim.generation == generation",
    ),
    Mutant(
        "nothing is taken back",
        _COORDINATOR,
        "        self._take_back(table, member, command.owned)\n",
        "",
    ),
    # -- assignments
    Mutant(
        "nothing is assigned when a member has gone",
        _COORDINATOR,
        "member.name))\n        self._assign_by(table, now)\n",
        "member.name))\n",
    ),
    Mutant(
        "nothing is assigned when a member has come",
        _COORDINATOR,
        "        self._assign_by(table, now if is_first else now + self._settings.assignment_delay)\n",
        "        self._assign_by(table, now if is_first else NEVER)\n",
    ),
    Mutant(
        "the first member waits",
        _COORDINATOR,
        "now if is_first else now + self._settings.assignment_delay",
        "now + self._settings.assignment_delay",
    ),
    Mutant(
        "joins do not wait for others",
        _COORDINATOR,
        "now if is_first else now + self._settings.assignment_delay",
        "now",
    ),
    Mutant(
        "nothing is assigned when a topic has come or gone",
        _COORDINATOR,
        "                self._assign_by(table, now)\n                self._arm(group, now)\n",
        "                pass\n",
    ),
    Mutant(
        "what was assigned is not looked at",
        _COORDINATOR,
        "        table.aim(target, members)\n        self._arm(group, self._engine.now())\n",
        "        table.aim(target, members)\n",
    ),
    Mutant(
        "an assignment is not taken",
        _COORDINATOR,
        "        table.aim(target, members)\n",
        "",
    ),
    Mutant(
        "what was shown since an assignment was computed is asked back",
        _TABLE,
        " for number, each in owners if each.number not in members}}\n",
        " for number, each in owners if each.number < 0}}\n",
    ),
    Mutant(
        "no assignment follows one",
        _COORDINATOR,
        "        table.is_assigning = False\n        if self.tables.get(group) is not table:\n            return\n",
        "        if self.tables.get(group) is not table:\n            return\n",
    ),
    Mutant(
        "an assignment for a table that is gone is taken",
        _COORDINATOR,
        "        table.is_assigning = False\n        if self.tables.get(group) is not table:\n            return\n",
        "        table.is_assigning = False\n",
    ),
    Mutant(
        "internal topics are shared out",
        _ASSIGNMENT,
        " for name, topic in topics if not is_internal(name)}",
        " for name, topic in topics}",
    ),
    Mutant(
        "an assignment leaves out what it does not change",
        _TABLE,
        "        self.to_place.update(dict.fromkeys(target))\n",
        "",
    ),
    Mutant(
        "what nobody is to have any more stays its owner's",
        _TABLE,
        "        self.to_place.update(dict.fromkeys(self.owners))\n",
        "",
    ),
    # -- answers
    Mutant(
        "a member is not told what it has lost",
        _COORDINATOR,
        "        lost = [number for number, generation in shown.items() if owned.get(number) != generation]\n",
        "        lost = []\n",
    ),
    Mutant(
        "a member is not told that a generation is old",
        _COORDINATOR,
        "if owned.get(number) != generation]\n",
        "if number not in owned]\n",
    ),
    Mutant(
        "a member is told again of what it is releasing",
        _COORDINATOR,
        " and each not in member.releasing",
        "",
    ),
    Mutant(
        "a member is asked for what it does not know of",
        _COORDINATOR,
        "each for each in asked if shown.get(each) == owned[each] and each not in member.releasing",
        "each for each in asked if each not in member.releasing",
    ),
    Mutant(
        "a waiting request is never answered without news",
        _COORDINATOR,
        "            if member.waiting is not None and member.answer_at <= now:\n",
        "            if member.waiting is None and member.answer_at <= now:\n",
    ),
    Mutant(
        "an earlier request is left without an answer",
        _COORDINATOR,
        "        before = member.session\n        if member.waiting is not None:\n"
        "            self._send(member, Attended(member.waiting))\n",
        "        before = member.session\n",
    ),
    Mutant(
        "a member that has gone is left without an answer",
        _COORDINATOR,
        "                self._send(member, Attended(member.waiting, lost=list(member.shown)))\n",
        "                pass\n",
    ),
    # -- claims
    Mutant(
        "all claims are members' that are not static",
        _CLAIMING,
        "ClaimKind.STATIC_MEMBER if member.name else ClaimKind.MEMBER",
        "ClaimKind.MEMBER",
    ),
    Mutant(
        "a partition of which the group has read others begins where start says",
        _CLAIMING,
        'match "earliest" if is_later else member.start:',
        "match member.start:",
    ),
    Mutant(
        "all partitions begin at their start",
        _CLAIMING,
        'match "earliest" if is_later else member.start:',
        'match "earliest" if self is not None else member.start:',
    ),
    Mutant(
        "what a prepared transaction holds begins",
        _CLAIMING,
        " or self._groups.held(group, number) is not None:",
        ":",
    ),
    Mutant(
        "an offset beyond the end is taken",
        _CLAIMING,
        "offset = min(max(wanted, store.start_offset), store.high_watermark)",
        "offset = max(wanted, store.start_offset)",
    ),
    Mutant(
        "a topic that is gone is claimed",
        _CLAIMING,
        "        there = [number for number in numbers if number in self._stores]\n",
        "        there = list(numbers)\n",
    ),
    Mutant(
        "limits hold for no claim",
        _CLAIMING,
        "        self._judge.check_room(group, table.group_id, numbers)\n        generation",
        "        generation",
    ),
    Mutant(
        "a refused claim is forgotten",
        _CLAIMING,
        "            table.refuse(there, again_at)\n",
        "",
    ),
    Mutant(
        "a refused claim is tried at once",
        _CLAIMING,
        "            table.refuse(there, again_at)\n",
        "            table.refuse(there, self._engine.now())\n",
    ),
    Mutant(
        "the claims that do not fit into a turn are forgotten",
        _COORDINATOR,
        "        return now if table.to_place else NEVER\n",
        "        return NEVER\n",
    ),
)
