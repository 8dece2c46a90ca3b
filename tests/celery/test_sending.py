"""Test tasks that are sent with a transaction: they are in their queues once it commits, or never."""

from contextlib import closing

import pytest
from kombu import Connection, Exchange, Queue

import txbroker
from tests.celery.conftest import ready
from tests.celery.worker_process import WorkerProcess
from tests.support.waiting import eventually
from txbroker.celery import joined
from txbroker.errors import DeclaredOtherwise, Misuse, Unroutable

pytestmark = pytest.mark.slow  # each test starts a broker


def messages(amqp_broker, queue="celery"):
    """The messages of a queue, as kombu gets them over AMQP."""
    found = []
    with Connection(amqp_broker.amqp_url) as connection:
        channel = connection.default_channel
        while (raw := channel.basic_get(queue, no_ack=True)) is not None:
            found.append(channel.message_to_python(raw))
    return found


def message_of(application, amqp_broker):
    """The message that Celery itself sends over AMQP."""
    application.plain.apply_async(("a",), task_id="1", countdown=3600, expires=7200, priority=3)
    (found,) = messages(amqp_broker)
    return found


def without_times(message):
    headers = {name: value for name, value in message.headers.items() if name not in ("eta", "expires")}
    properties = {
        name: value
        for name, value in message.properties.items()
        if name not in ("application_headers", "expiration")
    }
    delivery = {name: message.delivery_info[name] for name in ("exchange", "routing_key", "redelivered")}
    return message.payload, headers, properties, message.content_type, message.content_encoding, delivery


def test_a_task_is_sent_with_the_transaction(application, broker, amqp_broker):
    with broker.transaction() as tx:
        result = tx.celery(application.app).send_task("plain", ("a",))
        assert ready(broker) == 0
    (found,) = messages(amqp_broker)
    assert found.headers["id"] == result.id
    assert found.payload[0] == ["a"]


def test_its_message_is_the_one_that_celery_sends(application, broker, amqp_broker):
    expected = message_of(application, amqp_broker)
    with broker.transaction() as tx:
        options = {"task_id": "1", "countdown": 3600, "expires": 7200, "priority": 3}
        tx.celery(application.app).apply_async(application.plain, ("a",), **options)
    (found,) = messages(amqp_broker)
    assert without_times(found) == without_times(expected)
    assert abs(int(found.properties["expiration"]) - 7_200_000) < 60_000


def test_a_transaction_that_is_rolled_back_sends_nothing(application, broker, amqp_broker):
    with pytest.raises(KeyError), broker.transaction() as tx:  # noqa: PT012  (the block is what is left by an error)
        tx.celery(application.app).send_task("plain", ("a",))
        raise KeyError
    assert messages(amqp_broker) == []


def test_a_block_commits_the_row_and_the_task(application, broker, amqp_broker):
    with closing(application.open_database()) as database:
        with txbroker.atomic(database, broker, wait="commit") as tx:
            database.execute("INSERT INTO effects VALUES ('order', 'a')")
            tx.celery(application.app).apply_async(application.plain.s("a"))
        with pytest.raises(KeyError), txbroker.atomic(database, broker) as tx:  # noqa: PT012  (the block is what is left by an error)
            tx.celery(application.app).send_task("plain", ("b",))
            raise KeyError
    assert [found.payload[0] for found in messages(amqp_broker)] == [["a"]]


def test_delay_joins_what_the_program_has_said(application, broker, amqp_broker):
    with pytest.raises(KeyError), broker.transaction() as tx, joined(tx):  # noqa: PT012  (the block is what is left by an error)
        application.plain.delay("a")
        raise KeyError
    with broker.transaction() as tx, joined(tx):
        application.plain.delay("b")
    assert [found.payload[0] for found in messages(amqp_broker)] == [["b"]]


def test_delay_goes_to_the_broker_at_once_elsewhere(application, broker, amqp_broker):
    with broker.transaction():
        application.plain.delay("a")
        assert [found.payload[0] for found in messages(amqp_broker)] == [["a"]]


def test_it_needs_no_connection_to_the_port_of_amqp(application, broker, amqp_broker):
    application.app.conf.broker_url = "amqp://guest:guest@127.0.0.1:1//"
    with broker.transaction() as tx, joined(tx):
        application.plain.delay("a")
        application.plain.apply_async(("b",), countdown=60)
    assert len(messages(amqp_broker)) == 2


def test_a_group_a_chain_and_a_chord_are_sent_whole(application, broker, amqp_broker):
    from celery import chord, group

    with broker.transaction() as tx:
        tasks = tx.celery(application.app)
        tasks.apply_async(group(application.plain.s(id) for id in "ab"))
        tasks.apply_async(application.plain.s("c") | application.plain.s())
        tasks.apply_async(chord([application.plain.s("d"), application.plain.s("e")], application.gather.s()))
        assert ready(broker) == 0
    sent = [found.payload[0][0] for found in messages(amqp_broker) if found.headers["task"] == "plain"]
    assert sorted(sent) == ["a", "b", "c", "d", "e"]


def test_a_queue_is_declared_as_a_worker_declares_it(application, broker, amqp_broker):
    queue = Queue(
        "tasks", Exchange("tasks", type="topic"), "tasks.#", max_length=5, message_ttl=60, expires=600,
        queue_arguments={"x-queue-type": "quorum", "x-delivery-limit": 7},
    )  # fmt: skip
    with broker.transaction() as tx:
        tx.celery(application.app).send_task("plain", ("a",), queue=queue, routing_key="tasks.plain")
    with Connection(amqp_broker.amqp_url) as connection:
        queue(connection.default_channel).declare()
    (found,) = messages(amqp_broker, "tasks")
    assert found.delivery_info["exchange"] == "tasks"


def test_a_queue_that_is_there_otherwise_is_refused(application, broker, amqp_broker):
    broker.declare_queue("tasks", max_length=7)
    with broker.transaction() as tx, pytest.raises(DeclaredOtherwise):
        tx.celery(application.app).send_task("plain", ("a",), queue="tasks")


def test_a_task_that_finds_no_queue_refuses_the_transaction(application, broker):
    with pytest.raises(Unroutable), broker.transaction() as tx:  # noqa: PT012  (the block is what is left by an error)
        options = {"exchange": "amq.topic", "routing_key": "nowhere"}
        tx.celery(application.app).send_task("plain", ("a",), declare=[], **options)


def test_events_of_sending_need_nobody_who_listens(application, broker, amqp_broker):
    application.app.conf.task_send_sent_event = True
    with broker.transaction() as tx:
        tx.celery(application.app).send_task("plain", ("a",))
    assert len(messages(amqp_broker)) == 1


def test_signals_see_a_task_that_is_joined(application, broker):
    from celery.signals import after_task_publish, before_task_publish

    seen = []

    def before(sender, **_):
        seen.append(("before", sender))

    def after(sender, **_):
        seen.append(("after", sender))

    before_task_publish.connect(before)
    after_task_publish.connect(after)
    try:
        with broker.transaction() as tx:
            tx.celery(application.app).send_task("plain", ("a",))
    finally:
        before_task_publish.disconnect(before)
        after_task_publish.disconnect(after)
    assert seen == [("before", "plain"), ("after", "plain")]


def test_what_is_no_transaction_is_refused():
    for wrong in (object(), None, "default"):
        with pytest.raises(Misuse):
            joined(wrong)


def test_a_session_of_sqlalchemy_carries_tasks(application, broker, amqp_broker):
    from sqlalchemy import create_engine, text
    from sqlalchemy.orm import sessionmaker

    from txbroker.databases.sqlalchemy import carry

    engine = create_engine(f"sqlite:///{application.DATABASE}")
    sessions = sessionmaker(engine)
    carry(sessions, broker, wait="commit")
    with sessions() as session:
        with joined(session):
            session.execute(text("INSERT INTO effects VALUES ('order', 'a')"))
            application.plain.delay("a")
            with pytest.raises(KeyError), session.begin_nested():  # noqa: PT012  (the block is what is left by an error)
                application.plain.delay("b")
                raise KeyError
        assert ready(broker) == 0
        session.commit()
        with joined(session):
            application.plain.delay("c")
        session.rollback()
    assert [found.payload[0] for found in messages(amqp_broker)] == [["a"]]
    with sessionmaker(engine)() as other, pytest.raises(Misuse, match=r"carry\(\)"):
        joined(other)
    engine.dispose()


@pytest.mark.slow
def test_a_worker_runs_what_was_sent_with_a_transaction(application, broker, worker):
    with broker.transaction() as tx:
        result = tx.celery(application.app).send_task("plain", ("a",))
    assert result.get(timeout=30) == "a"
    eventually(lambda: ready(broker) == 0)


def test_a_worker_of_a_virtual_host_gets_what_is_sent_with_a_transaction(
    application, broker, amqp_broker, environment, tmp_path
):
    """Messages over AMQP and over the broker's own protocol meet in the queue that the broker calls shop/celery."""
    environment["SHOP_AMQP"] = amqp_broker.amqp_url.removesuffix("//") + "/shop"
    application.app.conf.broker_url = environment["SHOP_AMQP"]
    with broker.transaction() as tx, joined(tx):
        application.order.delay("a")
    assert ready(broker, "shop/celery") == 1
    application.order.delay("b")
    with WorkerProcess("tests.celery.shop", tmp_path / "worker.log", environment):
        eventually(lambda: application.effects("bill") == ["a", "b"] and ready(broker, "shop/celery") == 0)
    assert [each.name for each in broker.queues()].count("celery") == 0
