"""Kill programs and resolvers at each moment of an outbox: each committed block arrives once and in order, no other."""

import contextlib
import sqlite3

import pytest

import txbroker
from tests.databases.orders import make_tables, numbers
from tests.databases.outbox.program import BLOCKS, MOMENTS, OF_RESOLVERS
from tests.databases.outbox.scene import all_of, rows_of
from tests.support.dying_program import run_until_killed
from tests.support.waiting import eventually
from txbroker.databases.urls import connector

pytestmark = pytest.mark.slow


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def url(request):
    found = request.getfixturevalue(request.param)
    if request.param == "sqlite":
        sqlite3.connect(found).close()
        found.touch()
    text = f"sqlite:///{found}" if request.param == "sqlite" else found.url
    with contextlib.closing(connector(text)()) as database:
        make_tables(database)
    return text


def finish(url, broker):
    """What a resolver does when everybody is dead; the database may notice a death only later."""
    with txbroker.Resolver(connector(url), broker) as resolver:
        eventually(lambda: resolver.resolve().is_quiet and not rows_of(connector(url)))


def run(url, shared_broker, topic, moment, role="blocks", killed=True):
    arguments = (url, shared_broker.address, topic, moment, role)
    run_until_killed("tests.databases.outbox.program", *arguments, killed=killed)


BEFORE_COMMIT = ("before the row", "after the row", "before the commit")


@pytest.mark.sampled(2, test=12)
@pytest.mark.parametrize("moment", MOMENTS)
def test_what_a_killed_program_has_committed_arrives_once_and_in_order(
    url, broker, shared_broker, topic, moment
):
    run(url, shared_broker, topic, moment)
    committed = sorted(numbers(connector(url)))
    if moment in BEFORE_COMMIT:
        assert committed == [1, 2]
    elif moment in ("after the commit", "before delivering"):
        assert committed == [1, 2, 3]
    elif moment == "while it is held":
        assert committed[:3] == [1, 2, 3]
    elif moment.endswith(("empty", "release")):
        assert committed == list(range(1, BLOCKS + 1))
    finish(url, broker)
    assert all_of(broker, topic) == committed


@pytest.mark.sampled(1, test=6)
@pytest.mark.parametrize("moment", OF_RESOLVERS)
def test_what_a_killed_resolver_has_begun_another_ends(url, broker, shared_broker, topic, moment):
    run(url, shared_broker, topic, "after the commit")
    run(url, shared_broker, topic, moment, "resolve")
    assert sorted(numbers(connector(url))) == [1, 2, 3]
    finish(url, broker)
    assert all_of(broker, topic) == [1, 2, 3]


def test_a_program_that_nobody_kills_leaves_nothing(url, broker, shared_broker, topic):
    run(url, shared_broker, topic, "never", killed=False)
    assert all_of(broker, topic) == list(range(1, BLOCKS + 1))
    assert rows_of(connector(url)) == []
