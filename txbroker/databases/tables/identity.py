"""The identity of a decision table: random, and with the place where it was made, so that a copy does not decide."""

from __future__ import annotations

import secrets
import weakref
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from journal.arguments import text, wrong_value
from txbroker import errors
from txbroker.databases.adapters.database import IDENTITY, LAYOUT, TABLE, Condition, Database, identity_of
from txbroker.databases.tables.xids import TABLE_DIGITS

REPLACEMENT = "replacement"
SEPARATE = "separate"
COPIED = (
    "copied: the database was adopted as one that lives on beside its original, which delivers this row; "
    "'txbroker outbox drop' deletes it here"
)
"""What rows of the outbox of such a copy are refused with: delivered here, too, they would come twice."""


class Identity(NamedTuple):
    """The identity row; ``text`` is its stored form. ``generation`` counts the releases of streams, which raise it."""

    name: str
    home: str
    generation: int
    text: str


def stored(name: str, generation: int, home: str) -> str:
    """Return the text of an identity row."""
    return f"{LAYOUT} {name} {generation} {home}"


def parse(text: str | None) -> Identity:
    """Read an identity row; raises DecisionTableRefused."""
    layout, _, rest = (text or "").partition(" ")
    name, _, rest = rest.partition(" ")
    generation, _, home = rest.partition(" ")
    is_ours = (
        layout == str(LAYOUT) and len(name) == TABLE_DIGITS and generation.isascii() and generation.isdigit()
    )
    if text is None or not is_ours:
        found = "has not one row" if text is None else f"says {text[:80]!r} of itself"
        raise errors.DecisionTableRefused(
            f"the table {IDENTITY} {found}: it is not one that this version of txbroker has made (layout {LAYOUT}); "
            "nothing was decided by it. Look what it is: 'txbroker resolve --create' makes the right one where there "
            "is none"
        )
    return Identity(name, home, int(generation), text)


async def check_home(database: Database, identity: Identity) -> None:
    """Raise DecisionTableRefused if the table was made elsewhere, or cannot decide."""
    await database.check_table()
    here = await database.home()
    if database.is_elsewhere(identity.home, here):
        raise errors.DecisionTableRefused(
            f"the table {TABLE} is a copy: it was made at {identity.home!r} and is now at {here!r}. Two databases that "
            "decide the same transactions would decide them differently, so nothing was done. If this database takes "
            "the place of the first one, which is never used again: 'txbroker resolve --database URL --adopt "
            "replacement'. If both live on: '--adopt separate'"
        )


def missing(error: BaseException) -> errors.DecisionTableMissing:
    """Return the error for a database without the table."""
    return errors.DecisionTableMissing(
        f"the database has no tables {TABLE} and {IDENTITY}, or they cannot be read ({str(error).strip()}); nothing "
        "was done. Make it once: txbroker.create_decision_table(database), or 'txbroker resolve --database URL "
        "--create'; the program needs SELECT, INSERT, UPDATE and DELETE on them"
    )


async def read(database: Database) -> Identity:
    """Return the identity of a database's table, checked; leaves the transaction that it began open. For resolvers."""
    try:
        text = identity_of(await database.execute(database.read_identity))
    except Exception as error:
        if database.is_missing_table(error):
            raise missing(error) from error
        raise
    identity = parse(text)
    await check_home(database, identity)
    return identity


async def create(database: Database, adopt: str = "") -> str:
    """Make the table if there is none, commit, return its identity. ``adopt``, for a copy: REPLACEMENT or SEPARATE."""
    if text("adopt", adopt, "nothing was done") not in ("", REPLACEMENT, SEPARATE):
        raise wrong_value("adopt", adopt, "'replacement' and 'separate', or ''", "nothing was done")
    await database.open()
    if database.condition() in (Condition.OPEN, Condition.FAILED, Condition.BORROWED):
        raise errors.Misuse(
            "a transaction is open on this connection, and making the table ends with a commit: "
            f"{database.end_first}; nothing was done"
        )
    try:
        return await _create(database, adopt)
    except BaseException:
        await database.rollback()
        raise


async def _create(database: Database, adopt: str) -> str:
    await _make_tables(database, database.probe, [database.create])
    if database.has_outbox:
        await _make_tables(database, database.probe_outbox, database.create_outbox)
    await _make_tables(database, database.read_identity, [database.create_identity])
    result = await database.execute(database.read_identity)
    if not result.rows:
        name = await _write(database, _new_name(), 0, database.insert_identity)
    else:
        identity = parse(identity_of(result))
        name, generation = identity.name, identity.generation
        if adopt:
            if adopt == SEPARATE:
                name, generation = _new_name(), 0
                if database.has_outbox:
                    await database.execute(database.refuse_all, (COPIED,))
                    await database.execute(database.delete_all_rows)
            await _write(database, name, generation, database.update_identity)
        else:
            await check_home(database, identity)
    await database.commit()
    return name


async def _make_tables(database: Database, look: str, statements: Sequence[str]) -> None:
    try:
        await database.execute(look)
    except Exception as error:
        if not database.is_missing_table(error):
            raise
        await database.rollback()
        for statement in statements:
            await database.execute(statement)
        await database.commit()


def _new_name() -> str:
    return secrets.token_hex(TABLE_DIGITS // 2)


async def _write(database: Database, name: str, generation: int, statement: str) -> str:
    await database.execute(statement, (stored(name, generation, await database.home()),))
    return name


_checked: weakref.WeakKeyDictionary[object, Identity] = weakref.WeakKeyDictionary()


def checked(handle: object) -> Identity | None:
    """Return the table that this connection has led to, and whose place has been checked."""
    try:
        return _checked.get(handle)
    except TypeError:  # sqlite3's connections have no weak references; there the check costs next to nothing
        return None


def remember(handle: object, found: Identity) -> None:
    """Remember that it has been checked."""
    with suppress(TypeError):
        _checked[handle] = found


def forget(handle: object) -> None:
    """Forget it: it may be another one now."""
    with suppress(TypeError):
        _checked.pop(handle, None)
