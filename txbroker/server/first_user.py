"""The first user of a data directory: made before any broker listens, so that nobody ever comes in without a login."""

from __future__ import annotations

from enum import Enum

from journal.engine.engine import Engine
from journal.folds.table import client_folds
from journal.interfaces import IFilesystem
from journal.parties import ADMINISTRATOR
from journal.records.access_entries import RIGHTS_ON, Effect, Resource, Rule, User
from journal.records.outcome_entry import OUTCOMES_TOPIC
from journal.recovery.start import recover
from journal.vfs.clock import SystemClock
from txbroker.broker.broker import Broker
from txbroker.broker.sessions.session import unheard
from txbroker.server.settings.config import Config
from txbroker.wire.messages import AlterRule, AlterUser, Existing, Request, Switch, SwitchAccess

_NO_DATA = memoryview(b"")


class Found(Enum):
    """What a data directory was when it was opened."""

    UNUSED = "unused"
    """There was nothing in it but what a start makes."""
    CLOSED = "closed"
    """Everybody has to log in."""
    OPEN = "open"
    """It is used, and nobody has to log in."""


def make_first_user(filesystem: IFilesystem, config: Config, user: User, client: str) -> Found:
    """Give an unused directory its first user, who may administer the broker, and have everybody log in from now on.

    The directory is made if it is missing. If it is not unused nothing is changed, and what it is is returned. All of
    it is forced in one group: a kill leaves the directory unused or closed, a power cut amid that write perhaps open,
    with a user. The records are left for the first start of a broker, whose audit tells of them, with ``client`` as
    who did it.

    Raises what :func:`journal.recovery.start.recover` raises, and InvalidSetting for a user that cannot log in.
    """
    engine = recover(filesystem, SystemClock(), config.journal, folds=client_folds())
    try:
        broker = Broker(engine, config.broker)
        found = _found(engine, broker)
        if found is Found.UNUSED:
            session = broker.opened(client, unheard, unheard)
            session.principal = ADMINISTRATOR
            for request in _requests(user):
                broker.access_admin.handlers[type(request)](session, request, _NO_DATA)
            engine.sync()
        return found
    finally:
        engine.close()


def _found(engine: Engine, broker: Broker) -> Found:
    access = broker.access
    if access.demands_login:
        return Found.CLOSED
    is_used = access.users or access.rules or engine.catalog.topics.keys() - {OUTCOMES_TOPIC}
    return Found.OPEN if is_used else Found.UNUSED


def _requests(user: User) -> list[Request]:
    """What makes the user, as 'txbroker users' and 'txbroker access' ask for it."""
    rule = Rule(user.name, Effect.ALLOW, Resource.BROKER, "", False, list(RIGHTS_ON[Resource.BROKER]))
    return [
        AlterUser(1, user, [], Existing.NO),
        AlterRule(2, rule, False),
        SwitchAccess(3, Switch.ENABLE),
    ]
