"""Faults that the drill of rights must find, each made in a copy of the sources."""

from __future__ import annotations

from typing import NamedTuple

_ADMIN = "txbroker/broker/access/access_admin.py"
_POLICY = "txbroker/broker/access/access_policy.py"
_QUOTAS = "txbroker/broker/access/quotas.py"


class Mutant(NamedTuple):
    """A fault: in the file ``path``, ``new`` stands where ``old`` should."""

    name: str
    path: str
    old: str
    new: str


MUTANTS = [
    Mutant(
        "rights are those of the login",
        _ADMIN,
        "            session.rights = rights[session.principal]\n",
        "            pass\n",
    ),
    Mutant(
        "sessions of who is removed go on",
        _ADMIN,
        "        if ending:\n            self._engine.when_forced(end, None)\n",
        "",
    ),
    Mutant(
        "a rule that denies does not win",
        _POLICY,
        "    return bool(found) and all(rule.effect is Effect.ALLOW for rule in found)\n",
        "    return any(rule.effect is Effect.ALLOW for rule in found)\n",
    ),
    Mutant(
        "a prefix means the name alone",
        _POLICY,
        "    return name.startswith(rule.pattern) if rule.is_prefix else name == rule.pattern\n",
        "    return name == rule.pattern or not rule.pattern\n",
    ),
    Mutant(
        "a name means all that begins so",
        _POLICY,
        "    return name.startswith(rule.pattern) if rule.is_prefix else name == rule.pattern\n",
        "    return name.startswith(rule.pattern)\n",
    ),
    Mutant(
        "all roles are everybody's",
        _POLICY,
        "        return [rule for holder in holders for rule in self._access.rules_of(holder)]\n",
        "        roles = [rule for rule in self._access.rules.values() if ROLE in rule.holder]\n"
        "        return [*self._access.rules_of(principal), *roles]\n",
    ),
    Mutant(
        "any partition is written once one was",
        _POLICY,
        "            return command.partition in self._written\n",
        "            return bool(self._written)\n",
    ),
    Mutant(
        "what one has prepared is judged again",
        _POLICY,
        "        if owner == principal:\n            return None\n",
        "",
    ),
    Mutant(
        "lists of transactions look at the first letters alone",
        "txbroker/broker/sessions/things.py",
        '    return (Thing(prefix, f"{prefix}*", is_prefix=True),)\n\n\ndef by_table(',
        '    return (Thing(prefix, f"{prefix}*"),)\n\n\ndef by_table(',
    ),
    Mutant(
        "lists of topics do not say that there are others",
        "txbroker/broker/admin.py",
        "        is_filtered = command.names is None and session.rights is not None\n",
        "        is_filtered = False\n",
    ),
    Mutant(
        "one more may be prepared than the quota says",
        _QUOTAS,
        '        if present >= limit:\n            raise self._over("prepared"',
        '        if present > limit:\n            raise self._over("prepared"',
    ),
    Mutant(
        "the quota counts what others have prepared",
        _QUOTAS,
        "            each.owner is not None and each.owner.principal == principal for each in prepared.values()\n",
        "            True for each in prepared.values()\n",
    ),
    Mutant(
        "refusals are counted twice",
        _POLICY,
        "                self._policy.denied += 1\n",
        "                self._policy.denied += 2\n",
    ),
    Mutant(
        "the removal of a user is not replayed",
        "journal/folds/access.py",
        "            case UserRemoved():\n                del self.users[record.name]\n",
        "            case UserRemoved():\n                self.users[record.name] = User(record.name)\n",
    ),
    Mutant(
        "a checkpoint has no roles",
        "journal/folds/access.py",
        "        return iter([head, *self.users.values(), *self.rules.values()])\n",
        "        users = [msgspec.structs.replace(each, roles=[]) for each in self.users.values()]\n"
        "        return iter([head, *users, *self.rules.values()])\n",
    ),
    Mutant(
        "a token lets in after its end",
        "txbroker/login/tokens.py",
        "    if claims.exp + LEEWAY <= now:\n",
        "    if False:\n",
    ),
    Mutant(
        "a token is not checked",
        "txbroker/login/tokens.py",
        "    if not any(_is_signed(token, header.alg, key) for key in _candidates(issuer, header)):\n",
        "    if False:\n",
    ),
]
