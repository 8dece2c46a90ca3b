"""Test what users without rights are told over AMQP: nothing, also not whether there is what they name."""

import pytest
from msgspec.structs import replace

from journal.records.access_entries import Effect, Resource, Right, Rule
from journal.records.queue_entries import Binding, ExchangeKind, ExchangeSettings
from tests.broker.queues.scene import SELF, framed
from tests.channels.doors import PLAIN, GateHouse, start
from tests.channels.talk import consume, declare, published
from tests.login.login_room import TLS
from txbroker.amqp import connection_methods as c
from txbroker.amqp import methods as m
from txbroker.amqp.reply_codes import Reply
from txbroker.wire import messages

QUEUE, EXCHANGE = Resource.QUEUE, Resource.EXCHANGE


def declared(name, kind="topic", passive=False):
    return m.ExchangeDeclare(0, name, kind, passive, True, False, False, False, {})


CASES = {
    "look at a queue": (lambda queue, _: declare(queue, passive=True), [(QUEUE, Right.DESCRIBE)]),
    "declare a queue": (lambda queue, _: declare(queue), [(QUEUE, Right.CREATE)]),
    "declare a queue otherwise": (
        lambda queue, _: declare(queue, {"x-max-length": 5}), [(QUEUE, Right.CREATE)],
    ),
    "delete a queue": (lambda queue, _: m.QueueDelete(0, queue, False, False, False), [(QUEUE, Right.DELETE)]),
    "delete a queue without consumers": (
        lambda queue, _: m.QueueDelete(0, queue, True, False, False), [(QUEUE, Right.DELETE)],
    ),
    "purge": (lambda queue, _: m.QueuePurge(0, queue, False), [(QUEUE, Right.READ)]),
    "get": (lambda queue, _: m.BasicGet(0, queue, False), [(QUEUE, Right.READ)]),
    "consume": (lambda queue, _: consume(queue), [(QUEUE, Right.READ)]),
    "look at an exchange": (
        lambda _, exchange: declared(exchange, passive=True), [(EXCHANGE, Right.DESCRIBE)],
    ),
    "declare an exchange": (
        lambda _, exchange: declared(exchange), [(EXCHANGE, Right.CREATE)],
    ),
    "declare an exchange otherwise": (
        lambda _, exchange: declared(exchange, "fanout"), [(EXCHANGE, Right.CREATE)],
    ),
    "delete an exchange": (lambda _, exchange: m.ExchangeDelete(0, exchange, False, False), [(EXCHANGE, Right.DELETE)]),
    "bind": (
        lambda queue, exchange: m.QueueBind(0, queue, exchange, "k", False, {}),
        [(EXCHANGE, Right.READ), (QUEUE, Right.WRITE)],
    ),
    "unbind": (
        lambda queue, exchange: m.QueueUnbind(0, queue, exchange, "#", {}),
        [(EXCHANGE, Right.READ), (QUEUE, Right.WRITE)],
    ),
    "bind an exchange": (
        lambda _, exchange: m.ExchangeBind(0, exchange, "amq.topic", "k", False, {}), [(EXCHANGE, Right.WRITE)],
    ),
    "publish": (lambda _, exchange: published(1, "k", b"x", exchange=exchange), [(EXCHANGE, Right.WRITE)]),
    "publish what must find a queue": (
        lambda _, exchange: published(1, "k", b"x", exchange=exchange, mandatory=True), [(EXCHANGE, Right.WRITE)],
    ),
}  # fmt: skip


class Rights:
    """A broker that demands a login, with a queue and an exchange; alice may what rules say."""

    def __init__(self, *rights, names=("secret", "hidden")):
        self.house = GateHouse()
        queue, exchange = "secret", "hidden"
        self.ask(messages.DeclareQueue, queue)
        self.ask(messages.DeclareExchange, exchange, ExchangeSettings(ExchangeKind.TOPIC))
        self.ask(messages.Bind, Binding(exchange, "#", queue))
        self.ask(messages.Send, SELF, data=framed(queue, b"a"))
        for resource, right in rights:
            name = names[0] if resource is QUEUE else names[1]
            self.ask(messages.AlterRule, Rule("alice", Effect.ALLOW, resource, name, False, [right]))
        self.ask(messages.AlterRule, Rule("alice", Effect.ALLOW, EXCHANGE, "amq.topic", False, [Right.READ]))
        self.before = self.state()
        self.talker = start(self.house, "PLAIN", PLAIN, TLS)
        self.talker.say(c.ConnectionTuneOk(0, 0, 0), c.ConnectionOpen("/"), on=0)
        self.talker.say(c.ChannelOpen(), on=1)
        self.house.settle()
        self.talker.taken()

    def ask(self, *command, **more):
        answer = self.house.admin.ask(*command, **more)
        assert not isinstance(answer, messages.Refused), answer
        return answer

    def state(self):
        queues = self.ask(messages.ListQueues).queues
        exchanges = self.ask(messages.ListExchanges, bindings=True).exchanges
        return [(each.name, each.messages, each.unacknowledged, each.consumers) for each in queues], [
            (each.name, each.taken, each.bindings) for each in exchanges
        ]

    def told(self, what):
        self.talker.feed(what) if isinstance(what, bytes) else self.talker.say(what)
        self.house.settle()
        return [each.method for each in self.talker.taken()]


@pytest.mark.parametrize("case", CASES)
def test_who_has_not_the_rights_is_told_the_same_of_what_is_there_and_what_is_not(case):
    make, needs = CASES[case]
    for missing in needs:
        there = Rights(*[each for each in needs if each != missing])
        nothing = Rights(*[each for each in needs if each != missing], names=("nowhere", "nothing"))
        [told] = there.told(make("secret", "hidden"))
        [same] = nothing.told(make("nowhere", "nothing"))
        assert told.reply_code == Reply.ACCESS_REFUSED
        assert "refused for user 'alice'" in told.reply_text
        text = told.reply_text.replace("'secret'", "'nowhere'").replace("'hidden'", "'nothing'")
        assert replace(told, reply_text=text) == same
        assert there.state() == there.before


@pytest.mark.parametrize("case", CASES)
def test_who_has_them_may(case):
    make, needs = CASES[case]
    rights = Rights(*needs)
    told = rights.told(make("secret", "hidden"))
    if "otherwise" in case:
        assert [each.reply_code for each in told] == [Reply.PRECONDITION_FAILED]
    else:
        assert c.ChannelClose not in map(type, told)


def test_who_may_not_write_to_the_exchange_without_a_name_is_told_what_rules_call_it():
    [closed] = Rights().told(published(1, "secret", b"x"))
    assert closed.reply_text.startswith(
        "ACCESS_REFUSED - write access to exchange 'amq.default' in vhost '/' refused for user 'alice'"
    )
