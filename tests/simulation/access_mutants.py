"""One-line faults in users, rules and quotas, which histories in which clients have rights must find."""

from __future__ import annotations

from typing import Final

from tests.simulation.mutants import Mutant

_FOLD = "journal/folds/access.py"
_ADMIN, _POLICY, _QUOTAS = (
    f"txbroker/broker/access/{name}.py" for name in ("access_admin", "access_policy", "quotas")
)
_BROKER, _RIGHTS = "txbroker/broker/broker.py", "txbroker/broker/sessions/rights.py"

ACCESS_MUTANTS: Final = (
    # -- changes, and what a start knows of them
    Mutant(
        "answer a change of access before it is forced",
        _ADMIN,
        "        self._engine.when_forced(session.deliver, encode(answer))\n",
        "        session.deliver(encode(answer))\n",
    ),
    Mutant(
        "remove a user, and record nothing",
        _ADMIN,
        "        self._accept(UserRemoved(command.name, session.as_actor(), self._engine.now()), takes_away=True)\n",
        "        self._access.users.pop(command.name)\n",
    ),
    Mutant(
        "have a rule that is gone again after a checkpoint",
        _FOLD,
        "            del self.rules[rule.key]\n",
        "            self.rules[rule.key] = msgspec.structs.replace(self.rules[rule.key], rights=[])\n",
    ),
    Mutant(
        "forget a role at a checkpoint",
        _FOLD,
        "[head, *self.users.values(), *self.rules.values()]",
        "[head, *(msgspec.structs.replace(user, roles=user.roles[:-1]) for user in self.users.values()), "
        "*self.rules.values()]",
    ),
    Mutant(
        "forget at a checkpoint that one has to log in",
        _FOLD,
        "= head.is_on, head.is_confirmed, head.key",
        "= False, head.is_confirmed, head.key",
    ),
    # -- sessions
    Mutant(
        "leave the sessions of who was removed",
        _ADMIN,
        '        self._end_those_of({command.name}, f"user {command.name} was removed")\n',
        "",
    ),
    Mutant(
        "leave the sessions that a right was taken from",
        _ADMIN,
        "        if after != before and (rule.effect is Effect.ALLOW) is command.forget:\n",
        "        if after != before and rule.effect is Effect.DENY and not command.forget:\n",
    ),
    Mutant(
        "leave the sessions that a rule denies something",
        _ADMIN,
        "(rule.effect is Effect.ALLOW) is command.forget:\n",
        "command.forget and rule.effect is Effect.ALLOW:\n",
    ),
    Mutant(
        "leave the sessions that a role was taken from",
        _ADMIN,
        "        or not set(before.roles) <= set(after.roles)\n",
        "",
    ),
    Mutant(
        "leave sessions when one has to log in",
        _ADMIN,
        "            if is_on is not was_on:  # also",
        "            if was_on and not is_on:  # also",
    ),
    Mutant(
        "leave the sessions of who gets a role that is denied something",
        _ADMIN,
        " or self._is_denied(set(made.roles) - set(known.roles))",
        "",
    ),
    Mutant(
        "let in by a certificate that was taken away",
        "txbroker/login/ways.py",
        "        if self._seen == self._access.changed:\n",
        "        if self._seen > 0:\n",
    ),
    # -- what rules say
    Mutant(
        "go by the rules of when one came in",
        _ADMIN,
        "            session.rights = rights[session.principal]\n",
        "            rights[session.principal]\n",
    ),
    Mutant(
        "let a rule that allows win over one that denies",
        _POLICY,
        "    return bool(found) and all(rule.effect is Effect.ALLOW for rule in found)\n",
        "    return any(rule.effect is Effect.ALLOW for rule in found)\n",
    ),
    Mutant(
        "carry out what is refused",
        _BROKER,
        "            if session.rights is not None and type(command) is not Disconnected:\n"
        "                judge_rights(session.rights, command)\n"
        "            answer = self._handlers[type(command)](session, command, data)\n",
        "            answer = self._handlers[type(command)](session, command, data)\n"
        "            if session.rights is not None and type(command) is not Disconnected:\n"
        "                judge_rights(session.rights, command)\n",
    ),
    Mutant(
        "carry out a timed request that is not allowed",
        _RIGHTS,
        "        for need in needs_of(meant):\n",
        "        for need in needs_of(meant) if meant is command else ():\n",
    ),
    Mutant(
        "not look at the messages that a deciding request carries",
        _RIGHTS,
        "    return bool(command.runs)\n",
        "    return False\n",
    ),
    Mutant(
        "a position needs no right on its topic",
        "txbroker/broker/sessions/things.py",
        "    return (partition_of(number, places) for number in dict.fromkeys(numbers))\n",
        "    return ()\n",
    ),
    Mutant(
        "let anybody decide by a number",
        _RIGHTS,
        "    return bool(command.session) or not command.serial\n",
        "    return not command.serial\n",
    ),
    # -- transactions
    Mutant(
        "demand the right to decide of who has begun it",
        _POLICY,
        "        if owner == principal:\n            return None\n",
        "",
    ),
    Mutant(
        "judge what is prepared again at its commit",
        "txbroker/broker/transactions/transactions.py",
        "        cause, by, why = self._authority(session, command, number)\n        # The outcomes",
        "        for partition in known.partitions if known is not None and session.rights is not None else ():\n"
        "            needs = __import__('txbroker.broker.sessions.rights').broker.sessions.rights.NEEDS[Add]\n"
        "            session.rights.judge(needs[0], Add(0, 0, partition))\n"
        "        cause, by, why = self._authority(session, command, number)\n        # The outcomes",
    ),
    Mutant(
        "leave out of a list what is another's",
        "txbroker/broker/admin.py",
        "        principal = session.principal if command.own else None\n",
        "        principal = session.principal if command.own or session.rights is not None else None\n",
    ),
    Mutant(
        "give a list of which some is denied",
        _POLICY,
        "    if thing.is_prefix and rule.pattern.startswith(thing.name):\n        return True\n",
        "",
    ),
    Mutant(
        "list topics that may not be described",
        _RIGHTS,
        "    return [name for name in names if has_right(rights, Right.DESCRIBE, resource, name)]\n",
        "    return names\n",
    ),
    # -- quotas
    Mutant(
        "let somebody prepare one more than its quota",
        _QUOTAS,
        '        if present >= limit:\n            raise self._over("prepared"',
        '        if present > limit:\n            raise self._over("prepared"',
    ),
    Mutant(
        "let somebody have one session more than its quota",
        _QUOTAS,
        "        return None if present < limit else",
        "        return None if present <= limit else",
    ),
    Mutant(
        "count sessions that have ended, too",
        _QUOTAS,
        "            allowance.sessions.pop(session, None)\n",
        "",
    ),
    Mutant(
        "count what others have prepared, too",
        _QUOTAS,
        "            each.owner is not None and each.owner.principal == principal for each in prepared.values()\n",
        "            each.owner is not None for each in prepared.values()\n",
    ),
    Mutant(
        "go by the quotas of when one came in",
        _QUOTAS,
        "        elif allowance.quotas != quotas:\n            allowance.alter(quotas, now)\n",
        "",
    ),
    Mutant(
        "forget at a checkpoint whose a producer is",
        "journal/folds/producers.py",
        "each.used, sequences, each.owner, each.principal\n",
        'each.used, sequences, each.owner, ""\n',
    ),
    Mutant(
        "forget at a checkpoint whose a topic is",
        "journal/log/catalog.py",
        "list(t.ranges), t.created, t.id, t.owner)",
        'list(t.ranges), t.created, t.id, "")',
    ),
)
