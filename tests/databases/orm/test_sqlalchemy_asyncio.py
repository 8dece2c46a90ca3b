"""``async with atomic(session, broker, mode="two-phase")``: AsyncSession and AsyncConnection, over psycopg."""

# ruff: noqa: PT012, SIM117 - a whole block is what raises

import asyncio
import subprocess
import sys

import pytest
from sqlalchemy import insert, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine

import txbroker
from tests.databases.deaths.sigkill import DIES_AT_COMMIT
from tests.databases.orm.orm import Line, Order, numbers
from tests.databases.topic_content import values
from tests.support.waiting import eventually
from txbroker import State, errors
from txbroker.client.asyncio import connect
from txbroker.databases.asyncio import atomic
from txbroker.databases.sqlalchemy import carry

pytestmark = pytest.mark.slow


def in_a_loop(engine, address, work):
    async def everything():
        asynchronous = create_async_engine(engine.url)
        try:
            async with await connect(address, timeout=10.0) as broker:
                await work(asynchronous, broker)
        finally:
            await asynchronous.dispose()

    asyncio.run(everything())


def test_sessions_and_connections_become_one_with_their_messages(engine, broker, shared_broker, topic):
    async def work(asynchronous, mine):
        async with AsyncSession(asynchronous) as session:
            for number in (1, 2):
                async with atomic(session, mine, wait="commit", mode="two-phase") as tx:
                    session.add(Order(number=number))
                    await tx.send(topic, b"%d" % number)
                assert tx.outcome is State.COMMITTED
            with pytest.raises(ZeroDivisionError) as caught:
                async with atomic(session, mine, mode="two-phase") as tx:
                    session.add(Order(number=3))
                    await tx.send(topic, b"3")
                    _ = 1 / 0
            assert "neither rows nor messages" in caught.value.__notes__[0]
        async with asynchronous.connect() as connection:
            async with atomic(connection, mine, wait="commit", mode="two-phase") as tx:
                await connection.execute(insert(Order), {"number": 4, "state": "new"})
                await tx.send(topic, b"4")
        scoped = async_scoped_session(async_sessionmaker(asynchronous), asyncio.current_task)
        async with atomic(scoped, mine, wait="commit", mode="two-phase") as tx:
            scoped.add(Order(number=5))
            await tx.send(topic, b"5")
        await scoped.remove()
        assert mine.resolver.status.failure == ""

    in_a_loop(engine, shared_broker.address, work)
    assert (numbers(engine), values(broker, topic)) == ([1, 2, 4, 5], [b"1", b"2", b"4", b"5"])


def test_tasks_work_side_by_side(engine, broker, shared_broker, topic):
    async def work(asynchronous, mine):
        async def one(number):
            async with AsyncSession(asynchronous) as session:
                async with atomic(session, mine, wait="commit", mode="two-phase") as tx:
                    session.add(Order(number=number))
                    await tx.send(topic, b"%d" % number)

        await asyncio.gather(*(one(number) for number in range(20)))

    in_a_loop(engine, shared_broker.address, work)
    assert sorted(map(int, values(broker, topic))) == numbers(engine) == list(range(20))


def test_failures_are_told_as_elsewhere(engine, broker, shared_broker, topic):
    async def work(asynchronous, mine):
        async with AsyncSession(asynchronous) as session:
            with pytest.raises(IntegrityError):
                async with atomic(session, mine, mode="two-phase") as tx:
                    session.add(Line(number=1, of_order=99))
                    await tx.send(topic, b"1")
            assert tx.outcome is State.ROLLED_BACK
            with pytest.raises(errors.Misuse, match="nothing was committed"):
                async with atomic(session, mine, mode="two-phase") as tx:
                    session.add(Order(number=1))
                    await tx.send(topic, b"1")
                    await session.commit()
            async with session.begin():
                with pytest.raises(errors.Misuse, match=r"begin\(\)"):
                    await atomic(session, mine, mode="two-phase").__aenter__()
            with pytest.raises(errors.Misuse, match="async with"):
                txbroker.atomic(session, broker, mode="two-phase").__enter__()
            with pytest.raises(errors.Misuse, match="async with"):
                carry(
                    async_sessionmaker(asynchronous).kw.get("none", type(session.sync_session)),
                    broker,
                    mode="two-phase",
                ).send(session, topic, b"1")

    in_a_loop(engine, shared_broker.address, work)
    assert (numbers(engine), values(broker, topic)) == ([], [])


def test_a_database_that_dies_in_commit_is_an_unknown_outcome(engine, broker, shared_broker, topic):
    with engine.begin() as connection:
        for statement in DIES_AT_COMMIT:
            connection.execute(text(statement))

    async def work(asynchronous, mine):
        async with AsyncSession(asynchronous) as session:
            with pytest.raises(errors.OutcomeUnknown) as caught:
                async with atomic(session, mine, mode="two-phase") as tx:
                    session.add(Order(number=1))
                    await tx.send(topic, b"1")
            assert await mine.wait_outcome(caught.value.xid, 20.0) is State.ROLLED_BACK

    in_a_loop(engine, shared_broker.address, work)
    assert (numbers(engine), values(broker, topic)) == ([], [])
    eventually(lambda: broker.transactions([State.PREPARED]) == [])


@pytest.mark.parametrize("package", ["sqlalchemy", "django"])
def test_a_missing_extra_is_named_and_nothing_else_needs_it(package):
    program = (
        f"import sys; sys.modules[{package!r}] = None\n"
        "import txbroker, txbroker.databases.blocking, txbroker.databases.asyncio\n"
        f"try: import txbroker.databases.{package}\n"
        f"except ImportError as error: assert \"pip install 'txbroker[{package}]'\" in str(error), error\n"
        "else: raise AssertionError\n"
        "del sys.modules['sqlalchemy' if 'sqlalchemy' in sys.modules else 'django']\n"
        "assert not {'sqlalchemy', 'django'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60.0)
