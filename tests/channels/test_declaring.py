"""Test what clients of AMQP declare, bind, purge and delete, by RabbitMQ 3.13's rabbit_channel.erl."""

from __future__ import annotations

from decimal import Decimal

import pytest

from tests.channels.talk import (
    House,
    Talker,
    consume,
    declare,
    declare_exchange,
    published,
)
from txbroker.amqp import methods as m
from txbroker.amqp import properties as props
from txbroker.amqp.fields import entries_of, long_text, short_text, timestamp
from txbroker.amqp.framing import method_frame
from txbroker.amqp.reply_codes import Reply
from txbroker.queues import compared_headers


@pytest.fixture
def house() -> House:
    return House()


@pytest.fixture
def talker(house) -> Talker:
    return house.talker()


def bind(queue: str, exchange: str, key: str = "", arguments=None, no_wait: bool = False) -> m.QueueBind:
    return m.QueueBind(0, queue, exchange, key, no_wait, arguments or {})


def unbind(queue: str, exchange: str, key: str = "", arguments=None) -> m.QueueUnbind:
    return m.QueueUnbind(0, queue, exchange, key, arguments or {})


def delete(
    queue: str, if_unused: bool = False, if_empty: bool = False, no_wait: bool = False
) -> m.QueueDelete:
    return m.QueueDelete(0, queue, if_unused, if_empty, no_wait)


def headed(**headers) -> bytes:
    return props.made_of({}, headers)


def ways(talker: Talker, exchange: str, *keys: str, properties: bytes = props.NONE, queues=("q",)) -> dict:
    """Return which of these keys bring a message to which queues."""
    found = {}
    for key in keys:
        talker.publish(key, b"x", exchange=exchange, properties=properties)
        found[key] = [each for each in queues if talker.all_of(each)]
    return found


# -- queues ---------------------------------------------------------------------------------------


def test_a_queue_is_declared_once_and_again(talker):
    assert talker.ask(declare()) == m.QueueDeclareOk("q", 0, 0)
    talker.publish("q", b"a", b"b")
    talker.consume("q", "c")
    talker.qos(0)
    talker.say(m.BasicNack(0, True, True), m.BasicCancel("c", False))
    talker.taken()
    talker.open(2)
    assert talker.ask(declare()) == m.QueueDeclareOk("q", 2, 0)
    assert talker.ask(declare(passive=True, durable=False)) == m.QueueDeclareOk("q", 2, 0)


def test_a_queue_is_declared_without_an_answer(talker):
    talker.say(declare(no_wait=True), declare("p", no_wait=True), delete("p", no_wait=True))
    assert talker.methods() == []
    assert talker.ask(declare(passive=True)) == m.QueueDeclareOk("q", 0, 0)
    talker.refused(declare("p", passive=True, no_wait=True), Reply.NOT_FOUND)


def test_a_queue_without_a_name_gets_one(talker):
    first, second = talker.ask(declare("")), talker.ask(declare("", exclusive=True))
    assert first.queue != second.queue
    assert first.queue.startswith("amq.gen-")
    assert talker.ask(declare(first.queue, passive=True)).queue == first.queue
    assert talker.ask(declare(first.queue)).queue == first.queue, "as the specification has it"


def test_where_no_queue_is_named_the_one_declared_last_is_meant_also_in_one_read(talker):
    talker.queue("first")
    talker.say(declare("", exclusive=True), bind("", "amq.direct"), consume("", "c"), declare("q"))
    talker.feed(published(1, "", b"no") + method_frame(1, m.BasicGet(0, "", True)))
    told = talker.methods()
    name = told[0].queue
    assert name.startswith("amq.gen-")
    assert told[1:] == [
        m.QueueBindOk(), m.BasicConsumeOk("c"), m.QueueDeclareOk("q", 0, 0), m.BasicGetEmpty()
    ]  # fmt: skip
    talker.publish(name, b"a", exchange="amq.direct")
    assert talker.bodies() == [b"a"], "the key was the queue's name"
    talker.queue(name, exclusive=True, durable=False)
    assert talker.ask(unbind("", "amq.direct")) == m.QueueUnbindOk()
    talker.publish(name, b"a", exchange="amq.direct")
    assert talker.bodies() == []
    talker.publish("q", b"b", b"c")
    talker.queue("q")
    assert talker.ask(m.QueuePurge(0, "", False)) == m.QueuePurgeOk(2)
    assert talker.ask(delete("")) == m.QueueDeleteOk(0)
    talker.refused(declare("q", passive=True), Reply.NOT_FOUND)


@pytest.mark.parametrize(
    "method",
    [m.BasicGet(0, "", True), consume(""), m.QueuePurge(0, "", False), delete(""), bind("", "amq.fanout"),
     unbind("", "amq.fanout")],
    ids=lambda each: type(each).__name__,
)  # fmt: skip
def test_without_one_declared_before_that_is_404(talker, method):
    assert "no previously declared queue" in talker.refused(method, Reply.NOT_FOUND)


@pytest.mark.parametrize(
    "method",
    [declare("none", passive=True), declare("", passive=True), m.BasicGet(0, "none", True), consume("none"),
     m.QueuePurge(0, "none", False), bind("none", "amq.fanout"), bind("q", "none"),
     m.ExchangeBind(0, "none", "amq.fanout", "", False, {}), m.ExchangeBind(0, "amq.fanout", "none", "", False, {}),
     declare_exchange("none", passive=True)],
    ids=str,
)  # fmt: skip
def test_what_is_missing_is_404(talker, method):
    talker.queue()
    assert " in vhost '/'" in talker.refused(method, Reply.NOT_FOUND)


@pytest.mark.parametrize(
    "method",
    [declare("amq.mine"), declare_exchange("amq.mine"), declare_exchange(""), declare_exchange("", passive=True),
     m.ExchangeDelete(0, "", False, False), m.ExchangeDelete(0, "amq.direct", False, False), bind("q", ""),
     m.ExchangeDelete(0, "amq.none", False, False), unbind("q", ""), m.ExchangeBind(0, "", "amq.fanout", "", False, {}),
     m.ExchangeBind(0, "amq.fanout", "", "", False, {})],
    ids=str,
)  # fmt: skip
def test_what_is_the_brokers_own_is_403(talker, method):
    talker.queue()
    talker.refused(method, Reply.ACCESS_REFUSED)


def test_an_exclusive_queue_is_its_connections_alone(house, talker):
    other = house.talker()
    talker.queue(exclusive=True, durable=True)
    for method in (
        declare(), declare(exclusive=True), declare(passive=True), m.BasicGet(0, "q", True), consume(),
        m.QueuePurge(0, "q", False), delete("q"), bind("q", "amq.fanout"), unbind("q", "amq.fanout"),
    ):  # fmt: skip
        assert "cannot obtain exclusive access" in other.refused(method, Reply.RESOURCE_LOCKED)
    assert talker.ask(declare(exclusive=True, durable=False)).queue == "q", "durable or not, it ends before"
    other.publish("q", b"a")
    assert talker.get().body == b"a"
    talker.lose()
    other.refused(declare(passive=True), Reply.NOT_FOUND)


@pytest.mark.parametrize(
    ("flags", "arguments"),
    [({"durable": False}, {}), ({"auto_delete": True}, {}), ({}, {}), ({}, {"x-max-length": 6}),
     ({}, {"x-max-length": 5, "x-message-ttl": 1000}), ({}, {"x-max-length": 5, "x-max-length-bytes": 1000}),
     ({}, {"x-max-length": 5, "x-consumer-timeout": 1000})],
)  # fmt: skip
def test_a_queue_that_is_declared_otherwise_is_406(talker, flags, arguments):
    talker.queue(arguments={"x-max-length": 5})
    talker.refused(declare(arguments=arguments or None, **flags), Reply.PRECONDITION_FAILED)
    talker.queue(arguments={"x-max-length": 5, "x-unknown": [1, {}], "x-queue-type": "classic"})


def test_a_queue_that_is_for_everybody_is_not_made_exclusive(talker):
    talker.queue()
    talker.refused(declare(exclusive=True), Reply.RESOURCE_LOCKED)


def test_what_is_only_delivered_keeps_no_queue_from_being_deleted_if_empty_and_unused(talker):
    talker.queue()
    talker.publish("q", b"a")
    talker.refused(delete("q", if_empty=True), Reply.PRECONDITION_FAILED)
    talker.get(no_ack=False)
    talker.ask(delete("q", if_empty=True, if_unused=True))


KNOWN = {
    "x-message-ttl": (0, 60_000), "x-expires": (1, 1 << 31), "x-max-length": (0, 10), "x-delivery-limit": (0, 7),
    "x-max-length-bytes": (0, 1 << 40), "x-consumer-timeout": (1, 1_800_000),
    "x-dead-letter-exchange": ("", "amq.fanout"), "x-overflow": ("drop-head", "reject-publish"),
    "x-single-active-consumer": (True, False), "x-queue-type": ("classic", "quorum"), "x-max-priority": (0, 255),
    "x-queue-mode": ("default", "lazy"), "x-dead-letter-strategy": ("at-most-once",),
}  # fmt: skip


@pytest.mark.parametrize("name", KNOWN)
def test_arguments_of_a_queue_are_of_their_types(talker, name):
    for number, good in enumerate(KNOWN[name]):
        assert isinstance(talker.ask(declare(f"good{number}", {name: good})), m.QueueDeclareOk)
    spans = [1 << 52] if name in ("x-message-ttl", "x-expires", "x-consumer-timeout") else []
    wrong = {
        str: [7, b"\xff", "x" * 256],
        int: [-1, "5", True, 1.0, 1 << 60, *spans],
        bool: [1, "true"],
    }
    for bad in [*wrong[type(KNOWN[name][0])], [1], {"a": 1}, Decimal(5)]:
        talker.refused(declare("bad", {name: bad}), Reply.PRECONDITION_FAILED)
        talker.refused(declare("bad", passive=True), Reply.NOT_FOUND)


@pytest.mark.parametrize(
    ("arguments", "flags"),
    [({"x-max-priority": 256}, {}), ({"x-consumer-timeout": 0}, {}),
     ({"x-overflow": "reject-publish-dlx"}, {}), ({"x-queue-type": "stream"}, {}), ({"x-expires": 0}, {}),
     ({"x-queue-mode": "foo"}, {}), ({"x-dead-letter-strategy": "often"}, {}),
     ({"x-dead-letter-strategy": "at-least-once"}, {}),
     ({"x-dead-letter-strategy": "at-least-once", "x-overflow": "drop-head"}, {}), ({"x-more": "x" * 4090}, {}),
     ({"x-dead-letter-routing-key": "k"}, {}), ({"x-queue-type": "quorum"}, {"exclusive": True}),
     ({"x-queue-type": "quorum"}, {"durable": False}), ({"x-queue-type": "quorum"}, {"auto_delete": True})],
)  # fmt: skip
def test_what_is_not_kept_is_refused_and_not_passed_over(talker, arguments, flags):
    talker.refused(declare("q", arguments, **flags), Reply.PRECONDITION_FAILED)


def test_a_queue_that_is_not_durable_ends_with_the_broker(house, talker):
    talker.queue("short", durable=False)
    talker.queue("long")
    talker.publish("long", b"a")
    house.restart()
    talker = house.talker()
    talker.refused(declare("short", passive=True), Reply.NOT_FOUND)
    assert talker.queue("long").message_count == 1


def test_a_queue_that_nobody_uses_expires(house, talker):
    talker.queue(arguments={"x-expires": 5000})
    house.pass_time(4)
    assert isinstance(talker.ask(declare(arguments={"x-expires": 5000})), m.QueueDeclareOk)
    house.pass_time(4)
    assert talker.ask(declare(passive=True)).queue == "q"
    house.pass_time(6)
    talker.refused(declare(passive=True), Reply.NOT_FOUND)


# -- purging and deleting -------------------------------------------------------------------------


def test_purging_ends_what_can_be_got_and_what_comes_later_stays(house, talker):
    talker.queue()
    talker.publish("q", b"a", b"b", b"c")
    assert talker.get().body == b"a"
    talker.feed(
        published(1, "q", b"d") + method_frame(1, m.QueuePurge(0, "q", False)) + published(1, "q", b"e")
        + method_frame(1, m.BasicGet(0, "q", True))
    )  # fmt: skip
    told = talker.taken()
    assert told[0].method == m.QueuePurgeOk(3)
    assert told[1].body == b"e"
    talker.say(m.QueuePurge(0, "q", True))
    assert talker.methods() == []
    assert house.counts("q") == (0, 1)


def test_a_queue_is_deleted_with_its_messages_and_one_that_is_not_there_is_deleted(talker):
    talker.queue()
    talker.publish("q", b"a", b"b")
    assert talker.ask(delete("q")) == m.QueueDeleteOk(2)
    assert talker.ask(delete("q")) == m.QueueDeleteOk(0)
    assert talker.queue().message_count == 0


def test_a_queue_is_deleted_if_it_is_empty_and_unused(talker):
    talker.queue()
    talker.feed(published(1, "q", b"a") + method_frame(1, delete("q", if_empty=True)))
    talker.ended(Reply.PRECONDITION_FAILED)
    assert talker.all_of() == [b"a"]
    talker.consume()
    talker.refused(delete("q", if_unused=True), Reply.PRECONDITION_FAILED)
    talker.publish("q", b"b")
    talker.get()
    talker.say(m.BasicAck(1, False), delete("q", if_unused=True))
    assert talker.methods() == [m.QueueDeleteOk(0)], "the acknowledgement comes first"
    talker.queue()
    assert talker.ask(delete("q", if_unused=True, if_empty=True)) == m.QueueDeleteOk(0)


# -- exchanges ------------------------------------------------------------------------------------


def test_an_exchange_is_declared_once_and_again_and_deleted(talker):
    assert talker.ask(declare_exchange("x")) == m.ExchangeDeclareOk()
    assert talker.ask(declare_exchange("x")) == m.ExchangeDeclareOk()
    assert talker.ask(declare_exchange("x", "nonsense", passive=True, durable=False)) == m.ExchangeDeclareOk()
    talker.say(declare_exchange("y", no_wait=True), m.ExchangeDelete(0, "y", False, True))
    assert talker.methods() == []
    assert talker.ask(m.ExchangeDelete(0, "x", False, False)) == m.ExchangeDeleteOk()
    assert talker.ask(m.ExchangeDelete(0, "x", False, False)) == m.ExchangeDeleteOk(), "it is not there"
    talker.refused(declare_exchange("x", passive=True), Reply.NOT_FOUND)


@pytest.mark.parametrize(
    ("kind", "arguments", "flags"),
    [("fanout", {}, {}), ("direct", {}, {"durable": False}), ("direct", {}, {"auto_delete": True}),
     ("direct", {}, {"internal": True}), ("direct", {"alternate-exchange": "amq.fanout"}, {})],
)  # fmt: skip
def test_an_exchange_that_is_declared_otherwise_is_406(talker, kind, arguments, flags):
    for name in ("x", "amq.direct"):
        talker.exchange(name)
        talker.refused(declare_exchange(name, kind, arguments, **flags), Reply.PRECONDITION_FAILED)


def test_an_unknown_type_of_exchange_ends_the_connection_with_503(talker):
    assert "unknown exchange type 'x-delayed'" in talker.refused(
        declare_exchange("x", "x-delayed"), Reply.COMMAND_INVALID
    )


def test_an_alternate_exchange_has_a_name(talker):
    for bad in (7, True, ["x"], {"x": 1}):
        talker.refused(
            declare_exchange("x", arguments={"alternate-exchange": bad}), Reply.PRECONDITION_FAILED
        )


def test_an_exchange_that_is_bound_is_not_deleted_if_it_is_used(talker):
    talker.exchange("x")
    talker.queue()
    talker.bind("q", "x", "k")
    talker.refused(m.ExchangeDelete(0, "x", True, False), Reply.PRECONDITION_FAILED)
    assert talker.ask(unbind("q", "x", "k")) == m.QueueUnbindOk()
    assert talker.ask(m.ExchangeDelete(0, "x", True, False)) == m.ExchangeDeleteOk()


def test_an_exchange_ends_with_its_last_binding(talker):
    talker.exchange("x", auto_delete=True)
    talker.queue()
    talker.bind("q", "x")
    talker.ask(delete("q"))
    talker.refused(declare_exchange("x", passive=True), Reply.NOT_FOUND)


def test_an_internal_exchange_takes_nothing_from_clients(talker):
    talker.exchange("inner", internal=True)
    talker.exchange("outer", "fanout")
    talker.queue()
    talker.bind("q", "inner", "k")
    assert talker.ask(m.ExchangeBind(0, "inner", "outer", "", False, {})) == m.ExchangeBindOk()
    talker.refused(published(1, "k", b"a", exchange="inner"), Reply.ACCESS_REFUSED)
    assert ways(talker, "outer", "k") == {"k": ["q"]}


def test_what_has_no_way_goes_to_the_alternate_exchange(talker):
    talker.exchange("x", arguments={"alternate-exchange": "amq.fanout"})
    talker.queue()
    talker.queue("other")
    talker.bind("q", "x", "known")
    talker.bind("other", "amq.fanout")
    assert ways(talker, "x", "known", "strange", queues=("q", "other")) == {
        "known": ["q"],
        "strange": ["other"],
    }
    talker.confirm()
    talker.publish("strange", b"a", exchange="x", mandatory=True)
    assert talker.methods() == [m.BasicAck(1, False)], "it has not come back"


# -- bindings -------------------------------------------------------------------------------------


def test_bindings_are_made_and_ended_and_each_twice(talker):
    talker.queue()
    for kind, key, good, bad in (
        ("direct", "a", "a", "a.b"), ("topic", "a.*", "a.b", "a.b.c"), ("topic", "#.z", "a.z", "z.a"),
        ("fanout", "", "whatever", None),
    ):  # fmt: skip
        exchange = f"amq.{kind}"
        talker.bind("q", exchange, key)
        talker.bind("q", exchange, key)
        keys = [each for each in (good, bad) if each is not None]
        assert ways(talker, exchange, *keys) == {good: ["q"]} | ({} if bad is None else {bad: []})
        for _ in range(2):
            assert talker.ask(unbind("q", exchange, key)) == m.QueueUnbindOk()
        assert ways(talker, exchange, good) == {good: []}
    talker.say(bind("q", "amq.direct", "k", no_wait=True))
    assert talker.methods() == []
    assert ways(talker, "amq.direct", "k") == {"k": ["q"]}


def test_what_is_not_there_is_not_bound_to_anything(talker):
    talker.queue()
    for method, answer in (
        (unbind("none", "amq.direct", "k"), m.QueueUnbindOk()),
        (unbind("q", "none", "k"), m.QueueUnbindOk()),
        (unbind("q", "amq.direct", "k"), m.QueueUnbindOk()),
        (m.ExchangeUnbind(0, "none", "amq.direct", "", False, {}), m.ExchangeUnbindOk()),
        (m.ExchangeUnbind(0, "amq.direct", "none", "", True, {}), None),
    ):
        assert talker.ask(method) == answer


def test_exchanges_are_bound_to_exchanges(talker):
    talker.exchange("inner", "direct")
    talker.queue()
    talker.bind("q", "inner", "a")
    for _ in range(2):
        assert talker.ask(m.ExchangeBind(0, "inner", "amq.topic", "#", False, {})) == m.ExchangeBindOk()
    assert ways(talker, "amq.topic", "a", "b") == {"a": ["q"], "b": []}
    assert talker.ask(m.ExchangeUnbind(0, "inner", "amq.topic", "#", False, {})) == m.ExchangeUnbindOk()
    assert ways(talker, "amq.topic", "a") == {"a": []}
    talker.say(m.ExchangeBind(0, "inner", "amq.topic", "#", True, {}))
    assert talker.methods() == []
    assert ways(talker, "amq.topic", "a") == {"a": ["q"]}


@pytest.mark.parametrize(
    ("wanted", "given", "goes"),
    [
        ({"n": 1}, {"n": 1}, True), ({"n": 1}, {"n": "1"}, False), ({"n": "1"}, {"n": 1}, False),
        ({"n": 1}, {"n": True}, False), ({"n": True}, {"n": 1}, False), ({"n": True}, {"n": True}, True),
        ({"n": False}, {"n": 0}, False), ({"t": "a"}, {"t": "a", "u": "b"}, True), ({"n": None}, {"n": 3}, True),
        ({"n": None}, {}, False), ({"n": 1, "m": 2}, {"n": 1}, False),
        ({"x-match": "any", "n": 1, "m": 2}, {"n": 1}, True),
        ({"x-match": "any", "n": 1}, {"n": 2}, False), ({"x-match": "all", "n": 1}, {"n": 1}, True),
        ({"n": 1 << 40}, {"n": 1 << 40}, True), ({"x-a": 1}, {}, True),
        ({"x-match": "all-with-x", "x-a": 1}, {}, False),
        ({"x-match": "any-with-x", "x-a": 1}, {"x-a": 1}, True), ({}, {"n": 1}, True), ({"n": 1.5}, {"n": 1.5}, True),
    ],
)  # fmt: skip
def test_headers_are_compared_with_their_types(talker, wanted, given, goes):
    talker.queue()
    talker.bind("q", "amq.headers", "", wanted)
    assert ways(talker, "amq.headers", "k", properties=headed(**given)) == {"k": ["q"] if goes else []}


def test_bindings_that_differ_in_their_arguments_are_several(talker):
    talker.queue()
    talker.bind("q", "amq.headers", "", {"n": 1})
    talker.bind("q", "amq.headers", "", {"n": "1"})
    assert talker.ask(unbind("q", "amq.headers", "", {"n": 1})) == m.QueueUnbindOk()
    assert ways(talker, "amq.headers", "k", properties=headed(n=1)) == {"k": []}
    assert ways(talker, "amq.headers", "k", properties=headed(n="1")) == {"k": ["q"]}


NESTED = [
    [1, "a"],
    [],
    {"b": 1, "c": {"d": [None]}},
    {},
    Decimal("1.50"),
    {"b": [Decimal(1), b"\xff", True, 0.5]},
]


@pytest.mark.parametrize("value", NESTED, ids=repr)
def test_tables_arrays_and_decimals_are_compared_with_those_that_are_the_same(house, talker, value):
    talker.queue()
    talker.bind("q", "amq.headers", "", {"a": value})
    house.kill()
    talker = house.talker()
    for other in (*NESTED, [1], {"c": {"d": [None]}, "b": 1}, Decimal("1.5"), "a", 1, None, b""):
        goes = ["q"] if repr(other) == repr(value) else []
        assert ways(talker, "amq.headers", "k", properties=headed(a=other)) == {"k": goes}, other
    assert talker.ask(unbind("q", "amq.headers", "", {"a": [value]})) == m.QueueUnbindOk()
    assert ways(talker, "amq.headers", "k", properties=headed(a=value)) == {"k": ["q"]}
    assert talker.ask(unbind("q", "amq.headers", "", {"a": value})) == m.QueueUnbindOk()
    assert ways(talker, "amq.headers", "k", properties=headed(a=value)) == {"k": []}


def test_other_exchanges_keep_such_arguments_with_the_binding(house, talker):
    talker.queue()
    for value in NESTED:
        talker.bind("q", "amq.direct", "k", {"a": value})
    [*bindings] = house.broker.queues.declarations.exchange("amq.direct").bindings
    assert [compared_headers.told(dict(each.arguments)["a"]) for each in bindings] == NESTED
    assert ways(talker, "amq.direct", "k") == {"k": ["q"]}


def test_a_time_in_a_table_that_is_none_is_refused_and_equals_nothing(talker):
    talker.queue()
    late = entries_of({"a": {}})[:-4] + (long_text(short_text("t") + timestamp((1 << 64) - 1)))
    method = method_frame(1, bind("q", "amq.headers", "", {"a": {}})).replace(entries_of({"a": {}}), late)
    whole = method.replace(long_text(entries_of({"a": {}}))[:4] + late, long_text(late))
    size = len(whole) - 8
    words = talker.refused(whole[:3] + size.to_bytes(4) + whole[7:], Reply.PRECONDITION_FAILED)
    assert "of numbers with at most 64 bits" in words
    talker.bind("q", "amq.headers", "", {"b": 1})
    properties = props.replaced(props.NONE, {}, {props.HEADERS: long_text(late + entries_of({"b": 1}))})
    assert ways(talker, "amq.headers", "k", properties=properties) == {"k": ["q"]}


@pytest.mark.parametrize("arguments", [{"x-match": "some"}, {"x-match": 7}])
def test_arguments_that_no_message_can_be_judged_by_are_406(talker, arguments):
    talker.queue()
    talker.refused(bind("q", "amq.headers", "", arguments), Reply.PRECONDITION_FAILED)


def test_there_is_no_exchange_that_traces(talker):
    name = "amq.rabbitmq.trace"
    talker.refused(declare_exchange(name, "topic", passive=True), Reply.NOT_FOUND)
    talker.refused(declare_exchange(name, "topic", durable=True), Reply.ACCESS_REFUSED)


# -- addresses of replies -------------------------------------------------------------------------


def test_who_takes_replies_is_there_like_a_queue_and_nothing_else_of_that_name(house, talker):
    name = "amq.rabbitmq.reply-to"
    asker = house.talker()
    asker.say(consume(name, "r", no_ack=True))
    asker.publish("q", b"", properties=props.NONE)
    address = asker.connection._channels[1].consuming.reply_address
    for said in (declare(address), declare(address, passive=True)):
        assert talker.ask(said) == m.QueueDeclareOk(address, 0, 1)
    assert talker.ask(declare(name)) == m.QueueDeclareOk(name, 0, 1)
    talker.refused(declare(f"{name}.none"), Reply.NOT_FOUND)
    asker.taken()
    assert asker.ask(m.BasicCancel("r", False)) == m.BasicCancelOk("r")
    talker.refused(declare(address, passive=True), Reply.NOT_FOUND)
