"""``txbroker access``: what users may do."""

from __future__ import annotations

import re

import click
from msgspec.structs import replace
from rich.console import Group as Together

from journal.parties import ADMINISTRATOR
from journal.records.access_entries import (
    HOLDER_PATTERN,
    MAX_USER,
    RIGHTS_ON,
    ROLE,
    Effect,
    Resource,
    Right,
    Rule,
)
from txbroker.cli.exits import Exit, Failure
from txbroker.cli.invocation import Group, Invocation, confirm, pass_invocation
from txbroker.cli.output import emit, table
from txbroker.wire.messages import Rules, Switch, UserInfo

COLUMNS = ("", "who", "rights", "on", "named")
RIGHTS = ", ".join(right.value for right in Right)


@click.group(cls=Group)
def access() -> None:
    """Show and change what users may do, and who must log in.

    Nothing is allowed that no rule allows, and a rule that denies wins. WHO is a user, or a role as role:NAME. NAME is
    that of a topic, group or producer, or the global id of transactions; with a * at its end, all that begin so.
    """


class Rights(click.ParamType[list[Right]]):
    """Rights, with commas between them."""

    name = "rights"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> list[Right]:
        """Return the rights that a text names."""
        if value == "all":
            return list(Right)
        try:
            return [Right(each) for each in value.split(",")]
        except ValueError:
            self.fail(
                f"{value!r} are not rights with commas between them; known are {RIGHTS}, and all", param, ctx
            )


class Who(click.ParamType[str]):
    """A user, or a role."""

    name = "who"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return what may be the name of a user or role."""
        if not re.match(HOLDER_PATTERN, value) and value != ADMINISTRATOR:
            self.fail(
                f"{value!r} cannot be the name of a user: 1 to {MAX_USER} of A-Z, a-z, 0-9, '.', '_' and '-'; that of "
                f"a role is said as {ROLE}NAME",
                param,
                ctx,
            )
        return value


_WHO = click.argument("who", type=Who())
_RIGHTS = click.argument("rights", type=Rights())
_ON = click.argument("resource", type=click.Choice([each.value for each in Resource]))
_NAMED = click.argument("name", default="")


def _rule(who: str, effect: Effect, rights: list[Right], resource: str, name: str) -> Rule:
    kind = Resource(resource)
    if kind is Resource.BROKER and name:
        raise Failure("there is one broker: say no name of it; nothing was done", Exit.USAGE)
    if kind is not Resource.BROKER and not name:
        raise Failure(
            f"which {resource}s? Say a name, one with a * at its end, or * for all of them; nothing was done",
            Exit.USAGE,
        )
    if who == ADMINISTRATOR:
        raise Failure(
            f"{ADMINISTRATOR} is whoever comes over admin.sock, and may do everything; nothing was done",
            Exit.USAGE,
        )
    return Rule(who, effect, kind, name.removesuffix("*"), name.endswith("*"), rights)


def _whoever(who: str, users: list[UserInfo]) -> str:
    """Return what is to be said of somebody who is unknown; "" of a user, or of a role that a user has."""
    role = who.removeprefix(ROLE)
    if role != who:
        return "" if any(role in user.roles for user in users) else f"no user has the role {role!r}"
    return "" if any(user.name == who for user in users) else f"there is no user {who!r}"


@access.command()
@_WHO
@_RIGHTS
@_ON
@_NAMED
@pass_invocation
def allow(invocation: Invocation, who: str, rights: list[Right], resource: str, name: str) -> None:
    """Allow something: txbroker access allow shop read,write topic 'orders*'."""
    _add(invocation, _rule(who, Effect.ALLOW, rights, resource, name))


@access.command()
@_WHO
@_RIGHTS
@_ON
@_NAMED
@pass_invocation
def deny(invocation: Invocation, who: str, rights: list[Right], resource: str, name: str) -> None:
    """Deny something, whatever other rules allow; sessions of WHO are ended."""
    _add(invocation, _rule(who, Effect.DENY, rights, resource, name))


def _add(invocation: Invocation, rule: Rule) -> None:
    if set(rule.rights) == set(Right):  # all that there are on this
        rule = replace(rule, rights=list(RIGHTS_ON[rule.resource]))
    with invocation.connect() as broker:
        unknown = _whoever(rule.holder, broker.users())
        found = broker.allow(rule)
    if unknown:
        then = "allows" if rule.effect is Effect.ALLOW else "denies"
        click.echo(f"Warning: {unknown}; as long as that is so, the rule {then} nothing.", err=True)
    emit(invocation.as_json, rule_json(found), lambda: f"{found}".capitalize() + ".")


@access.command()
@click.argument("effect", type=click.Choice([each.value for each in Effect]))
@_WHO
@_RIGHTS
@_ON
@_NAMED
@pass_invocation
def forget(
    invocation: Invocation, effect: str, who: str, rights: list[Right], resource: str, name: str
) -> None:
    """Take rights out of a rule: txbroker access forget allow shop write topic 'orders*'.

    Sessions of who loses something by it are ended; they may log in again.
    """
    with invocation.connect() as broker:
        left = broker.forget_rule(_rule(who, Effect(effect), rights, resource, name))
    emit(
        invocation.as_json,
        rule_json(left),
        lambda: f"Left: {left}." if left.rights else "That rule is gone.",
    )


@access.command("list")
@pass_invocation
def list_rules(invocation: Invocation) -> None:
    """List all rules, and whether they decide."""
    with invocation.connect() as broker:
        found = broker.rules()
    emit(
        invocation.as_json,
        {
            "enabled": found.is_on,
            "confirmed": found.is_confirmed,
            "rules": [rule_json(each) for each in found.rules],
        },
        lambda: Together(table(COLUMNS, map(_row, found.rules), "There are no rules."), _state(found)),
    )


def _state(rules: Rules) -> str:
    if not rules.is_confirmed:
        then = (
            "everybody has" if rules.is_on else "nobody has (was it so? 'txbroker access enable' changes it)"
        )
        return f"The directory was repaired: nobody is let in until 'txbroker access confirm'. Then {then} to log in."
    if not rules.is_on:
        return "Nobody has to log in: the rules do not decide. 'txbroker access enable' has them decide."
    return "Everybody has to log in, and the rules decide."


def _row(rule: Rule) -> tuple[object, ...]:
    rights = ", ".join(right.value for right in rule.rights)
    named = None if rule.resource is Resource.BROKER else f"{rule.pattern}{'*' if rule.is_prefix else ''}"
    return (rule.effect.value, rule.holder, rights, rule.resource.value, named)


def rule_json(rule: Rule) -> dict[str, object]:
    """Return a rule as JSON."""
    return {
        "effect": rule.effect.value,
        "who": rule.holder,
        "rights": [right.value for right in rule.rights],
        "resource": rule.resource.value,
        "name": rule.pattern,
        "prefix": rule.is_prefix,
    }


@access.command()
@_WHO
@click.argument("right", type=click.Choice([each.value for each in Right]))
@_ON
@_NAMED
@pass_invocation
def check(invocation: Invocation, who: str, right: str, resource: str, name: str) -> None:
    """Ask whether a user may do something: exit code 0 if so, 1 if not. It shows the rules that say so."""
    with invocation.connect() as broker:
        found = broker.check_access(who, Right(right), Resource(resource), name)
        unknown = "" if who == ADMINISTRATOR else _whoever(who, broker.users())
    verdict = "allowed" if found.is_allowed else "denied"
    because = "".join(f"\n  {rule}" for rule in found.rules) or "\n  by no rule"
    if unknown:
        because = f"\n  {unknown}"
    elif who == ADMINISTRATOR:
        because = "\n  whoever comes over admin.sock may do everything"
    emit(
        invocation.as_json,
        {"allowed": found.is_allowed, "rules": [rule_json(each) for each in found.rules]},
        lambda: f"{verdict.capitalize()}:{because}",
    )
    if not found.is_allowed:
        raise click.exceptions.Exit(int(Exit.NO))


@access.command()
@click.option("--yes", is_flag=True, help="Do not ask.")
@pass_invocation
def enable(invocation: Invocation, yes: bool) -> None:
    """Have everybody log in, and the rules decide, from now on. Sessions that have not logged in are ended.

    It is refused while no user that can log in may administer the broker.
    """
    confirm("Have everybody log in from now on?", yes)
    with invocation.connect() as broker:
        broker.switch_access(Switch.ENABLE)
    said = "Everybody has to log in from now on, and the rules decide."
    emit(invocation.as_json, {"done": Switch.ENABLE.value}, lambda: said)


@access.command()
@click.option("--yes", is_flag=True, help="Do not ask.")
@pass_invocation
def disable(invocation: Invocation, yes: bool) -> None:
    """Let everybody in who reaches the broker, to do everything; only over the socket in the data directory.

    All sessions are ended. Endpoints that others than this machine's users can reach are closed.
    """
    confirm("Let everybody in without a login, to do everything?", yes)
    _switch(invocation, Switch.DISABLE)


@access.command("confirm")
@click.option("--yes", is_flag=True, help="Do not ask.")
@pass_invocation
def confirm_access(invocation: Invocation, yes: bool) -> None:
    """After a repair: look at users and rules, and let them count; only over the socket in the data directory.

    A repair may have lost a change of them: the removal of a user, a rule that denies, or that everybody has to log in.
    That is left as it is: say 'txbroker access enable' before, if it should be otherwise.
    """
    with invocation.connect() as broker:
        found, known = broker.rules(), broker.users()
    click.echo(f"Users: {', '.join(each.name for each in known) or 'none'}", err=True)
    for rule in found.rules:
        click.echo(f"  {rule}", err=True)
    click.echo(f"{'Everybody' if found.is_on else 'Nobody'} has to log in.", err=True)
    confirm("Are these the users and rules that there should be, and who has to log in?", yes)
    _switch(invocation, Switch.CONFIRM)


def _switch(invocation: Invocation, what: Switch) -> None:
    """Switch over the administrator's socket, whose session goes on, and say what holds from then on."""
    with invocation.connect() as broker:
        broker.switch_access(what)
        found = broker.rules()
    emit(invocation.as_json, {"done": what.value}, lambda: _state(found))
