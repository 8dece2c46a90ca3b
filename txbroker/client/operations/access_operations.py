"""The requests of every client about users and rules, written once for all clients."""

from __future__ import annotations

from collections.abc import Collection

from journal.records.access_entries import Resource, Right, Rule, User
from txbroker import errors
from txbroker.client.core.client_method import client_method
from txbroker.client.core.core import Core
from txbroker.wire.messages import (
    AccessChecked,
    AlterRule,
    AlterUser,
    CheckAccess,
    Done,
    Existing,
    ListRules,
    ListUsers,
    RemoveUser,
    Rules,
    Switch,
    SwitchAccess,
    UserInfo,
    Users,
)


class AccessOperations:
    """The methods of every client's connection for administrators. Each raises AccessDenied without that right."""

    core: Core

    @client_method
    async def users(self) -> list[UserInfo]:
        """Return all users, by their names."""
        core, found, after = self.core, list[UserInfo](), ""
        while True:
            page = await core.request(ListUsers(core.correlation(), after), Users)
            found += page.users
            if not page.more or not page.users:
                return found
            after = found[-1].name

    @client_method
    async def add_user(self, user: User) -> None:
        """Make a user. Raises UserExists, and InvalidSetting if another one has one of its certificates or tokens."""
        core = self.core
        call = core.request(AlterUser(core.correlation(), user, [], Existing.NO), Done)
        try:
            await call
        except errors.UserExists:
            if call.attempts < 2:  # else it was this client's own first try
                raise

    @client_method
    async def alter_user(self, user: User, names: Collection[str]) -> None:
        """Change the fields of a user that ``names`` has: of scram, certificates, tokens, roles, quotas.

        Raises UnknownUser.

        Without the right to administer one may change the own password.
        """
        core = self.core
        await core.request(AlterUser(core.correlation(), user, list(names), Existing.YES), Done)

    @client_method
    async def remove_user(self, name: str) -> None:
        """Remove a user, and end its sessions. What it has prepared stays. Raises UnknownUser."""
        core = self.core
        call = core.request(RemoveUser(core.correlation(), name), Done)
        try:
            await call
        except errors.UnknownUser:
            if call.attempts < 2:  # else it was this client's own first try
                raise

    @client_method
    async def rules(self) -> Rules:
        """Return all rules, in the order in which they were made, and whether they decide."""
        core = self.core
        page = await core.request(ListRules(core.correlation()), Rules)
        found = list(page.rules)
        while page.more and page.rules:
            page = await core.request(ListRules(core.correlation(), len(found)), Rules)
            found += page.rules
        return Rules(0, found, False, page.is_on, page.is_confirmed)

    @client_method
    async def allow(self, rule: Rule) -> Rule:
        """Add the rights of a rule to the one for the same holder, effect and resources; return it as it is then."""
        return await self._alter(rule, forget=False)

    @client_method
    async def forget_rule(self, rule: Rule) -> Rule:
        """Take rights away from a rule; return it as it is then, without rights if it is gone."""
        return await self._alter(rule, forget=True)

    async def _alter(self, rule: Rule, *, forget: bool) -> Rule:
        core = self.core
        return (await core.request(AlterRule(core.correlation(), rule, forget), Rules)).rules[0]

    @client_method
    async def switch_access(self, what: Switch) -> None:
        """Demand a login from everybody from now on, or do so no more, or confirm users and rules after a repair.

        Raises InvalidSetting if no user that can log in may administer.
        """
        await self.core.request(SwitchAccess(self.core.correlation(), what), Done)

    @client_method
    async def check_access(
        self, principal: str, right: Right, resource: Resource, name: str = ""
    ) -> AccessChecked:
        """Return whether the rules allow a user a right on a thing of that name, and which of them say so."""
        core = self.core
        request = CheckAccess(core.correlation(), principal, right, resource, name)
        return await core.request(request, AccessChecked)
