"""Test virtual hosts: what their clients name is theirs, and has their prefix in the broker.

Seen to fail: with a method whose names do not enter, and with an exchange or a death that does not leave.
"""

from __future__ import annotations

import pytest

from tests.channels.talk import House, Talker
from txbroker.amqp import connection_methods as c
from txbroker.amqp import methods as m
from txbroker.amqp.reply_codes import Reply
from txbroker.channels.virtual_hosts import VirtualHost

SHOP, OTHER = "shop", "other"


class Hosts(House):
    hosts = (SHOP, OTHER)


@pytest.fixture
def house() -> Hosts:
    return Hosts()


@pytest.fixture
def talker(house: Hosts) -> Talker:
    return house.talker(SHOP)


def names(house: House) -> list[str]:
    return sorted(house.broker.queues.listing.names())


def declare(queue: str, passive: bool = False, **arguments: object) -> m.QueueDeclare:
    return m.QueueDeclare(0, queue, passive, True, False, False, False, dict(arguments))


def exchange(name: str, kind: str = "direct", **arguments: object) -> m.ExchangeDeclare:
    return m.ExchangeDeclare(0, name, kind, False, True, False, False, False, dict(arguments))


def bind(queue: str, to: str, key: str = "") -> m.QueueBind:
    return m.QueueBind(0, queue, to, key, False, {})


def test_a_queue_of_a_host_is_another_than_that_of_the_same_name_elsewhere(house, talker):
    plain, other = house.talker(), house.talker(OTHER)
    for each in (talker, plain, other):
        assert each.ask(declare("q")) == m.QueueDeclareOk("q", 0, 0)
    assert names(house) == ["other/q", "q", "shop/q"]
    talker.publish("q", b"a")
    house.settle()
    assert (house.counts("shop/q"), house.counts("q"), house.counts("other/q")) == ((1, 0), (0, 0), (0, 0))
    talker.say(m.BasicGet(0, "q", True))
    house.settle()
    [got] = talker.taken()
    assert (got.method.exchange, got.method.routing_key, got.body) == ("", "q", b"a")


def test_the_default_exchange_of_a_host_knows_its_queues_alone(house, talker):
    house.talker().ask(declare("elsewhere"))
    talker.publish("elsewhere", b"x", mandatory=True)
    house.settle()
    [returned] = talker.taken()
    assert (returned.method.exchange, returned.method.routing_key) == ("", "elsewhere")
    for method in (
        bind("q", ""), exchange(""), m.ExchangeDelete(0, "", False, False),
        m.ExchangeBind(0, "", "amq.fanout", "", False, {}),
    ):  # fmt: skip
        talker.open(2)
        talker.ask(declare("q"), on=2)
        closed = talker.ask(method, on=2)
        assert (closed.reply_code, "default exchange" in closed.reply_text) == (Reply.ACCESS_REFUSED, True), (
            closed
        )
        talker.say(c.ChannelCloseOk(), on=2)


def test_exchanges_bindings_and_deliveries(house, talker):
    talker.ask(exchange("logs", "topic"))
    talker.ask(declare("q"))
    talker.ask(bind("q", "logs", "a.*"))
    talker.ask(bind("q", "amq.fanout"))
    plain = house.talker()
    assert plain.ask(exchange("logs", "fanout")) == m.ExchangeDeclareOk()
    talker.consume()
    talker.publish("a.b", b"1", exchange="logs")
    talker.publish("", b"2", exchange="amq.fanout")
    plain.publish("a.b", b"not here", exchange="logs")
    house.settle()
    assert [(each.method.exchange, each.method.routing_key, each.body) for each in talker.taken()] == [
        ("logs", "a.b", b"1"), ("amq.fanout", "", b"2"),
    ]  # fmt: skip


def test_dead_letters_stay_in_their_host_and_say_where_they_have_died_by_its_names(house, talker):
    talker.ask(declare("dead"))
    talker.ask(declare("q", **{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}))
    talker.publish("q", b"a")
    house.settle()
    talker.say(m.BasicGet(0, "q", False))
    house.settle()
    [got] = talker.taken()
    talker.say(m.BasicReject(got.method.delivery_tag, False))
    house.settle()
    talker.say(m.BasicGet(0, "dead", True))
    house.settle()
    [letter] = talker.taken()
    [death] = letter.headers["x-death"]
    assert (death["queue"], death["exchange"], letter.method.exchange) == ("q", "", "")
    assert letter.headers["x-first-death-queue"] == "q"


def test_the_alternate_exchange_is_one_of_the_host(house, talker):
    talker.ask(exchange("rest", "fanout"))
    talker.ask(exchange("first", **{"alternate-exchange": "rest"}))
    talker.ask(declare("q"))
    talker.ask(bind("q", "rest"))
    talker.publish("nobody", b"a", exchange="first")
    house.settle()
    assert house.counts("shop/q") == (1, 0)


def test_names_that_the_broker_gives_and_the_queue_that_was_declared_last(house, talker):
    made = talker.ask(declare(""))
    assert made.queue.startswith("amq.gen-")
    assert names(house) == [f"shop/{made.queue}"]
    talker.ask(exchange("x"))
    assert talker.ask(bind("", "x")) == m.QueueBindOk()
    talker.publish(made.queue, b"by its name as the key", exchange="x")
    house.settle()
    assert house.counts(f"shop/{made.queue}") == (1, 0)
    closed = talker.ask(declare("amq.mine"))
    assert closed.reply_code == Reply.ACCESS_REFUSED


def test_what_is_declared_otherwise_locked_or_not_there_is_refused(house, talker):
    talker.ask(exchange("x", "fanout"))
    for method, reply in (
        (exchange("x", "topic"), Reply.PRECONDITION_FAILED),
        (declare("nothing", passive=True), Reply.NOT_FOUND),
        (exchange("y", "default"), Reply.COMMAND_INVALID),
    ):
        client = house.talker(SHOP)
        closed = client.ask(method)
        assert closed.reply_code == reply, closed


MISSING, OURS = "'nothing' in vhost 'shop'", "'q' in vhost 'shop'"


@pytest.mark.parametrize(
    ("method", "text"),
    [
        (declare("nothing", passive=True), f"NOT_FOUND - no queue {MISSING}"),
        (m.BasicGet(0, "nothing", True), f"NOT_FOUND - no queue {MISSING}"),
        (bind("q", "nothing"), f"NOT_FOUND - no exchange {MISSING}"),
        (declare("amq.q"), "ACCESS_REFUSED - queue name 'amq.q' contains reserved prefix 'amq.*'"),
        (exchange("amq.x"), "ACCESS_REFUSED - exchange name 'amq.x' contains reserved prefix 'amq.*'"),
        (m.QueueDelete(0, "q", False, True, False), f"PRECONDITION_FAILED - queue {OURS} not empty"),
        (
            declare("q", **{"x-max-length": 5}),
            f"PRECONDITION_FAILED - inequivalent arg 'x-max-length' for queue {OURS}: received the value '5' of type "
            "'signedint' but current is none",
        ),
    ],
    ids=lambda each: type(each).__name__,
)  # fmt: skip
def test_an_error_says_the_clients_own_names_and_its_host(house, talker, method, text):
    talker.ask(declare("q"))
    talker.publish("q", b"a")
    house.settle()
    assert talker.ask(method).reply_text == text


@pytest.mark.parametrize(
    ("method", "text"),
    [
        (
            declare("dying", **{"x-dead-letter-exchange": "amq.direct"}),
            "inequivalent arg 'x-dead-letter-exchange' for queue 'dying' in vhost 'shop': received the value "
            "'amq.direct' of type 'longstr' but current is the value '' of type 'longstr'",
        ),
        (
            exchange("other", **{"alternate-exchange": "amq.fanout"}),
            "inequivalent arg 'alternate-exchange' for exchange 'other' in vhost 'shop': received the value "
            "'amq.fanout' of type 'longstr' but current is the value 'amq.topic' of type 'longstr'",
        ),
        (m.ExchangeDelete(0, "bound", True, False), "exchange 'bound' has 1 binding"),
    ],
    ids=["queue", "exchange", "bound"],
)  # fmt: skip
def test_other_names_in_errors_are_the_clients_own_too(house, talker, method, text):
    talker.ask(declare("dying", **{"x-dead-letter-exchange": ""}))
    talker.ask(exchange("other", **{"alternate-exchange": "amq.topic"}))
    talker.ask(exchange("bound"))
    talker.ask(bind("dying", "bound"))
    words = talker.ask(method).reply_text
    assert text in words
    assert "shop/" not in words


def test_a_refused_commit_names_the_queue_as_its_client_does(house, talker):
    talker.ask(declare("it's full", **{"x-max-length": 0, "x-overflow": "reject-publish"}))
    talker.ask(m.TxSelect())
    talker.publish("it's full", b"a")
    words = talker.ask(m.TxCommit()).reply_text
    assert words.startswith('PRECONDITION_FAILED - queue "it\'s full" may have 0 messages')


def test_errors_about_locks_and_internal_exchanges_say_the_host(house, talker):
    talker.ask(m.QueueDeclare(0, "own", False, False, True, False, False, {}))
    talker.ask(m.ExchangeDeclare(0, "inner", "fanout", False, True, False, True, False, {}))
    other = house.talker(SHOP)
    assert other.ask(m.QueuePurge(0, "own", False)).reply_text == (
        "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue 'own' in vhost 'shop'"
    )
    talker.publish("", b"a", exchange="inner")
    [closed] = talker.taken()
    assert (
        closed.method.reply_text
        == "ACCESS_REFUSED - cannot publish to internal exchange 'inner' in vhost 'shop'"
    )


def test_a_direct_reply_goes_without_a_queue(house, talker):
    talker.consume("amq.rabbitmq.reply-to", no_ack=True)
    talker.ask(declare("q"))
    answers = house.talker(SHOP)
    address = next(iter(house.directory._replies))
    answers.publish(address, b"answer")
    house.settle()
    [got] = talker.taken()
    assert (got.method.exchange, got.body) == ("", b"answer")


def test_a_host_that_nobody_has_set_up_is_refused(house):
    talker = Talker(house)
    with pytest.raises(AssertionError, match="ConnectionClose"):
        talker.enter(host="nothing")


def test_its_exchanges_are_there_after_a_start_and_cannot_be_bound_or_deleted(house, talker):
    before = {each for each in house.broker.queues.declarations._fold.exchanges if each.startswith("shop/")}
    assert before == {
        "shop/",
        "shop/amq.direct",
        "shop/amq.fanout",
        "shop/amq.topic",
        "shop/amq.headers",
        "shop/amq.match",
    }
    talker.ask(declare("q"))
    talker.publish("q", b"a")
    house.settle()
    house.kill()
    again = house.talker(SHOP)
    again.publish("q", b"b")
    house.settle()
    assert house.counts("shop/q") == (2, 0)


def test_the_names_of_the_root_are_as_they_are():
    root = VirtualHost("/")
    method = declare("q", **{"x-dead-letter-exchange": "d"})
    assert root.entering(method) is method
    assert (root.shown("shop/q"), root.shown("")) == ("'shop/q' in vhost '/'", "'amq.default' in vhost '/'")
    assert VirtualHost("shop").shown("shop/") == "'amq.default' in vhost 'shop'"
    assert (root.inside("q"), root.outside("shop/q"), VirtualHost("shop").outside("other/q")) == (
        "q",
        "shop/q",
        "other/q",
    )
