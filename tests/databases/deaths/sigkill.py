"""The deaths of the tests' programs: SIGKILL at one moment of a block's end, or of PostgreSQL during a commit."""

import os
import signal

from txbroker.databases.blocking import BlockingSide

DIES_AT_COMMIT = (
    "CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS "
    "$$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END $$",
    "CREATE CONSTRAINT TRIGGER die AFTER INSERT ON orders DEFERRABLE INITIALLY DEFERRED "
    "FOR EACH ROW EXECUTE FUNCTION die()",
)
"""Statements after which a commit of rows of ``orders`` kills its own backend."""


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def die_around(owner, name, moment, before, after):
    """Die when ``owner.name`` is called, if the moment is ``before``, or when it is done, if it is ``after``."""
    original = getattr(owner, name)

    async def replaced(*arguments):
        if moment == before:
            die()
        found = await original(*arguments)
        if moment == after:
            die()
        return found

    setattr(owner, name, replaced)


def die_at(moment, database):
    """``database`` is the adapter that commits the block's rows, or its class."""
    die_around(BlockingSide, "prepare", moment, "before prepare", "after prepare")
    die_around(database, "commit", moment, "before commit", "after commit")
    die_around(BlockingSide, "shown", moment, "", "after the broker's commit")
    if moment == "before the broker's commit":
        BlockingSide.tell = lambda *arguments: die()
