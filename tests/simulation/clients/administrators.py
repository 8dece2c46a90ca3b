"""The administrator of the simulation: it changes users, rules and the switch over the socket that only it may use.

One change is under way at a time. After a lost connection it looks at what has become of the last one, and comes back
with the session that it had, so that nothing which it sent before can come later.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

from journal.records.access_entries import Effect, Quotas, Resource, Right, Rule, User
from tests.simulation.clients.clients import Client
from tests.simulation.model.access.access_model import Change
from tests.simulation.model.access.rule_model import ADMINISTRATOR, Access, Account, Meant, RuleKey
from tests.simulation.model.log_model import require
from txbroker.login.facts import ConnectionFacts
from txbroker.wire import messages

FACTS = ConnectionFacts(address="unix", secure=True, administrator=True)
"""What the operating system says of who has come through the administrator's socket."""

USERS = ("u1", "u2", "u3")
ROOT = "root"
"""The user that may administer, so that access can be switched on. Nobody comes in as it."""

THINGS: dict[str, tuple[list[tuple[str, bool]], list[str]]] = {
    "topic": (
        [("", True), ("", True), ("a", True), ("b", True), ("a", False), ("ab", False), ("b", False)],
        ["read", "write", "create", "alter", "delete", "describe"],
    ),
    "group": ([("", True), ("g", False), ("h", False)], ["read", "alter", "delete", "describe"]),
    "producer": ([("", True), ("n", False)], ["write"]),
    "transaction": (
        [("", True), ("", True), ("x", True), ("y", True), ("owner:u1", False), ("owner:u2", False)],
        ["prepare", "decide", "force", "describe"],
    ),
    "broker": ([("", False)], ["describe"]),
}
"""What rules are about: names, and whether all that begin so are meant; and the rights on them."""

_WEIGHTS = (10, 3, 1, 6, 1)
"""Of the kinds of things in rules."""


class Administrator(Client):
    """Whoever may do everything."""

    mechanism = "EXTERNAL"
    facts = FACTS

    def connect(self, after: messages.FormerSession | None = None) -> None:
        """Connect, always with the former session."""
        self.knows = not self.world.access.is_open
        super().connect(self.former)

    def play(self, random: Random) -> None:
        """One act, if the last one was answered."""
        if self.connection is None:
            self.connect()
        elif self.ready and not self.waits:
            if not self.knows or random.random() < 0.1:
                self.look()
            elif random.random() < 0.1:
                self._check(random)
            else:
                self._change(random)

    @property
    def waits(self) -> bool:
        """Whether something is unanswered."""
        return bool(self._pending)

    # -- looking ----------------------------------------------------------------------------------

    def look(self) -> None:
        """Read all users and rules."""
        told: list[tuple[Any, int]] = []
        self.ask(messages.ListUsers, then=lambda answer, _, since: told.append((answer, since)))

        def then(answer: Any, data: bytes, since: int) -> None:
            [(users, asked)] = told
            access = access_of(users, answer)
            if self.knows:
                self.world.access.read(access, asked)
            else:
                self.world.access.found(access)
                self.knows = True

        self.ask(messages.ListRules, then=then)

    def _check(self, random: Random) -> None:
        kind = random.choice([*THINGS])
        names, rights = THINGS[kind]
        name, right = random.choice(names)[0], random.choice(rights)
        user = random.choice((*USERS, ROOT, "nobody"))
        self.ask(
            messages.CheckAccess,
            user,
            Right(right),
            Resource(kind),
            name,
            then=partial(self._checked, user, right, kind, name),
        )

    def _checked(
        self, user: str, right: str, kind: str, name: str, answer: Any, data: bytes, since: int
    ) -> None:
        states = [replace(access, is_on=True) for access in self.world.access.during(since)]
        possible = {access.allows(user, right, kind, Meant(name)) for access in states}
        require(
            answer.is_allowed in possible, f"whether {user} may {right} {kind} {name!r} is {possible}", answer
        )

    # -- changes ----------------------------------------------------------------------------------

    def _change(self, random: Random) -> None:
        """Some change, rather one that gives something."""
        access, dice = self.world.access.last, random.random()
        missing = [name for name in USERS if name not in access.users]
        if not access.is_on and dice < 0.3:
            self.switch(messages.Switch.ENABLE)
        elif dice < 0.04:
            self.switch(
                random.choice((messages.Switch.DISABLE, messages.Switch.ENABLE, messages.Switch.CONFIRM))
            )
        elif dice < 0.25 and missing:
            self.add_user(random.choice(missing), self._account(random, random.choice(missing)))
        elif dice < 0.27:
            name = random.choice(USERS)
            self.add_user(name, self._account(random, name))
        elif dice < 0.34:
            self.remove_user(random.choice(USERS))
        elif dice < 0.6:
            self._alter_user(random, random.choice(USERS))
        else:
            forget = random.random() < 0.4
            key = self._key(random, forget)
            rights = random.sample(THINGS[key.resource][1], random.randint(1, len(THINGS[key.resource][1])))
            self.alter_rule(key, frozenset(rights), forget)

    def _key(self, random: Random, forget: bool) -> RuleKey:
        """What a rule is about; when something is to be forgotten, mostly one that is there."""
        known = [key for key in self.world.access.last.rules if key.holder != ROOT]
        if forget and known and random.random() < 0.8:
            denying = [key for key in known if key.denies]
            return random.choice(denying if denying and random.random() < 0.5 else known)
        [kind] = random.choices([*THINGS], _WEIGHTS)
        pattern, is_prefix = random.choice(THINGS[kind][0])
        holder = random.choice((*USERS, *USERS, "role:r", "role:s"))
        return RuleKey(holder, random.random() < 0.2, kind, pattern, is_prefix)

    @staticmethod
    def _account(random: Random, name: str) -> Account:
        """A user mostly comes in by its own certificate; seldom by that of another one."""
        certificate = f"DNS:{name if random.random() < 0.85 else random.choice(USERS)}"
        roles = frozenset(role for role in "rs" if random.random() < 0.5)
        return Account(frozenset([certificate]), roles, _quotas(random))

    def _alter_user(self, random: Random, name: str) -> None:
        known = self.world.access.last.users.get(name, Account())
        certificate = f"DNS:{random.choice((name, name, *USERS))}"
        what, value = random.choice(
            (
                ("roles", known.roles ^ {random.choice("rs")}),
                ("certificates", known.certificates ^ {certificate}),
                ("quotas", _quotas(random)),
            )
        )
        self.alter_user(name, what, value)

    def add_user(self, name: str, account: Account) -> None:
        """Make a user."""
        access = self.world.access.last
        refusal = "UserExists" if name in access.users else _taken(access, name, account)
        after = access if refusal else access.with_user(name, account)
        self._ask(
            Change(f"making user {name}", after, refusal, _nobody),
            messages.AlterUser, user_of(name, account), [], messages.Existing.NO,
        )  # fmt: skip

    def alter_user(self, name: str, what: str, value: Any) -> None:
        """Change something about a user."""
        access = self.world.access.last
        known = access.users.get(name)
        account = replace(known or Account(), **{what: value})
        refusal = "UnknownUser" if known is None else _taken(access, name, account)
        after = access if refusal else access.with_user(name, account)
        lost = not refusal and known is not None and (
            not (known.roles <= account.roles and known.certificates <= account.certificates)
            or access.denies_by(account.roles - known.roles)
        )  # fmt: skip
        self._ask(
            Change(f"changing {what} of {name}", after, refusal, (lambda who: who == name) if lost else _nobody),
            messages.AlterUser, user_of(name, account), [what],
        )  # fmt: skip

    def remove_user(self, name: str) -> None:
        """Remove a user, if it is there."""
        access = self.world.access.last
        refusal = "" if name in access.users else "UnknownUser"
        ends = _nobody if refusal else lambda who: who == name
        self._ask(
            Change(f"removing {name}", access.with_user(name, None), refusal, ends), messages.RemoveUser, name
        )

    def alter_rule(self, key: RuleKey, rights: frozenset[str], forget: bool = False) -> None:
        """Add rights to a rule, or take some away."""
        access = self.world.access.last
        before = access.rules.get(key, frozenset())
        left = before - rights if forget else before | rights
        about = access.held_by(key.holder)
        ends = about.__contains__ if left != before and key.denies != forget else _nobody
        change = Change(
            f"{'forgetting' if forget else 'having'} {sorted(rights)} of {key}",
            access.with_rule(key, left),
            "",
            ends,
        )
        self._ask(change, messages.AlterRule, rule_of(key, rights), forget)

    def switch(self, what: messages.Switch) -> None:
        """Demand a login, or do so no more; or confirm, which changes nothing here."""
        access = self.world.access.last
        is_on = access.is_on if what is messages.Switch.CONFIRM else what is messages.Switch.ENABLE
        is_refused = what is messages.Switch.ENABLE and not access.has_administrator()
        refusal = "InvalidSetting" if is_refused else ""
        ends: Callable[[str], bool] = _nobody
        if not refusal and is_on != access.is_on:
            ends = ADMINISTRATOR.__ne__
        after = access if refusal else replace(access, is_on=is_on)
        self._ask(Change(f"to {what.value} access", after, refusal, ends), messages.SwitchAccess, what)

    def _ask(self, change: Change, kind: Callable[..., Any], *fields: Any) -> None:
        self.ask(kind, *fields, then=self._answered_change)
        self.world.access.ask(change)

    def _answered_change(self, answer: Any, data: bytes, since: int) -> None:
        access = self.world.access
        if isinstance(answer, messages.Refused):
            access.refused(answer.error)
            self.world.count("changes of access refused")
            return
        if isinstance(answer, messages.Rules):
            [rule] = answer.rules
            key, rights = key_of(rule)
            require(access.last.rules.get(key, frozenset()) == rights, f"{access.changes[-1].name}", rule)
        access.done()
        self.world.count("changes of access")


def _nobody(principal: str) -> bool:
    return False


def _taken(access: Access, name: str, account: Account) -> str:
    """The error with which a user is refused that has a way in of another one."""
    others = [each for other, each in access.users.items() if other != name]
    return "WayInTaken" if any(each.certificates & account.certificates for each in others) else ""


def _quotas(random: Random) -> dict[str, int]:
    """Few of something, or as much as one wants."""
    limits = {
        "sessions": (1, 2),
        "topics": (0, 1, 2),
        "producers": (0, 1, 2),
        "prepared": (0, 1, 2),
        "prepared_age": (1000,),
    }
    return {name: random.choice(values) for name, values in limits.items() if random.random() < 0.25}


# -- as the broker has them ------------------------------------------------------------------------------


def user_of(name: str, account: Account) -> User:
    """A user as requests have it."""
    return User(name, None, sorted(account.certificates), [], sorted(account.roles), Quotas(**account.quotas))


def rule_of(key: RuleKey, rights: frozenset[str]) -> Rule:
    """A rule as requests have it."""
    effect = Effect.DENY if key.denies else Effect.ALLOW
    return Rule(
        key.holder,
        effect,
        Resource(key.resource),
        key.pattern,
        key.is_prefix,
        [Right(each) for each in sorted(rights)],
    )


def key_of(rule: Rule) -> tuple[RuleKey, frozenset[str]]:
    """A rule as the model has it."""
    key = RuleKey(rule.holder, rule.effect is Effect.DENY, rule.resource.value, rule.pattern, rule.is_prefix)
    return key, frozenset(right.value for right in rule.rights)


def access_of(users: Any, rules: Any) -> Access:
    """All users and rules as the model has them, from the answers to who has asked for them."""
    require(isinstance(users, messages.Users) and not users.more, "all users are listed", users)
    require(isinstance(rules, messages.Rules) and not rules.more, "all rules are listed", rules)
    require(rules.is_confirmed, "access is confirmed", rules)
    accounts = {
        each.name: Account(frozenset(each.certificates), frozenset(each.roles), each.quotas.given())
        for each in users.users
    }
    return Access(rules.is_on, accounts, dict(map(key_of, rules.rules)))
