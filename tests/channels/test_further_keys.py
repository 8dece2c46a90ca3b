"""Test the headers CC and BCC: further routing keys of a message."""

import pytest

from tests.broker.queues.scene import SELF, framed
from tests.channels.talk import House, declare
from tests.support.broker_room import refused
from txbroker.amqp import methods as m
from txbroker.amqp import properties as props
from txbroker.amqp.reply_codes import Reply
from txbroker.wire import messages
from txbroker.wire.queues import KEYS


@pytest.fixture
def house():
    return House()


@pytest.fixture
def talker(house):
    talker = house.talker()
    for name in "abc":
        talker.queue(name)
    return talker


def publish(talker, key, headers, body=b"x", **more):
    talker.publish(key, body, properties=props.made_of({props.TYPE: "t"}, headers), **more)


def test_a_message_goes_where_each_of_its_keys_leads_and_no_reader_learns_of_bcc(talker):
    publish(talker, "a", {"CC": ["b", "nowhere"], "BCC": ["c"], "kept": "y"})
    for name in "abc":
        got = talker.get(name, no_ack=True)
        assert (got.body, got.method.routing_key) == (b"x", "a")
        assert got.headers == {"CC": ["b", "nowhere"], "kept": "y"}
        assert props.decoded(got.properties)["type"] == "t"


def test_a_queue_that_several_keys_lead_to_has_it_once(talker):
    talker.exchange("topic", "topic")
    talker.bind("a", "topic", "x.*")
    talker.bind("b", "topic", "y.#")
    publish(talker, "x.1", {"CC": ["x.2", "y.1"], "BCC": ["x.3"]}, exchange="topic")
    assert [talker.all_of(name) for name in "abc"] == [[b"x"], [b"x"], []]


def test_a_mandatory_message_needs_one_key_that_leads_somewhere(talker):
    talker.confirm()
    publish(talker, "nowhere", {"CC": ["b"]}, mandatory=True)
    assert [type(each.method) for each in talker.taken()] == [m.BasicAck]
    publish(talker, "nowhere", {"CC": ["neither"]}, mandatory=True)
    assert [type(each.method) for each in talker.taken()] == [m.BasicReturn, m.BasicAck]


@pytest.mark.parametrize("name", ["CC", "BCC"])
@pytest.mark.parametrize("value", ["b", 5, ["b", 5], ["x" * 256], ["b"] * 1025, [["b"]], {"b": 1}])
def test_what_are_no_keys_is_refused(house, talker, name, value):
    publish(talker, "a", {name: value})
    talker.ended(Reply.PRECONDITION_FAILED)
    assert house.counts("a") == (0, 0)


def test_words_in_which_cc_stands_are_no_keys(talker):
    publish(talker, "a", {"ACCESS": "b", "cc": ["b"], "x": "CC"})
    assert talker.get("a").headers == {"ACCESS": "b", "cc": ["b"], "x": "CC"}
    assert talker.get("b") is None


@pytest.mark.parametrize(("key", "left"), [(None, [[b"x"], [b"x"], []]), ("c", [[], [], [b"x"]])])
def test_a_dead_letter_keeps_the_keys_that_are_told_unless_it_gets_another(house, talker, key, left):
    talker.exchange("dead", "direct")
    for name in "abc":
        talker.bind(name, "dead", name)
    given = {} if key is None else {"x-dead-letter-routing-key": key}
    talker.queue("from", {"x-dead-letter-exchange": "dead", **given})
    publish(talker, "from", {"CC": ["a", "b"], "BCC": ["c"]})
    for name in "abc":
        assert talker.all_of(name) == [b"x"]
    got = talker.get("from")
    talker.say(m.BasicReject(got.method.delivery_tag, False))
    house.settle()
    letter = talker.get("c" if key else "a")
    [death] = letter.headers["x-death"]
    assert death["routing-keys"] == ["from", "a", "b"]
    talker.say(m.BasicNack(letter.method.delivery_tag, False, True))
    house.settle()
    assert [talker.all_of(name) for name in "abc"] == left


def test_a_death_tells_so_many_keys_and_a_circle_of_them_ends(house, talker):
    talker.queue("round", {"x-message-ttl": 0, "x-dead-letter-exchange": ""})
    publish(talker, "round", {"CC": ["\x01" * 255] * 500})
    house.pass_time(2.0)
    assert house.counts("round") == (0, 0)
    assert house.broker.queues.circles > 0


@pytest.mark.parametrize(
    "said", [b"", b"{}", b"[1]", b'[["x",5]]', b"\xff", b'[["' + b"x" * 256 + b'"]]', b"[[]] "]
)
def test_a_client_of_the_broker_says_them_as_json(house, talker, said):
    peer = house.peer()
    answer = peer.ask(messages.Send, SELF, data=framed("a", b"n", headers={KEYS: said}))
    if said == b"[[]] ":
        assert isinstance(answer, messages.Sent)
    else:
        assert "says no routing keys" in refused(answer, "InvalidFrame")
    answer = peer.ask(messages.Send, SELF, data=framed("a", b"m", headers={KEYS: b'[["b"],["c"]]'}))
    assert isinstance(answer, messages.Sent)
    assert (talker.all_of("b"), talker.all_of("c")) == ([b"m"], [b"m"])
    assert talker.refused(declare("a", {"x-expires": 5}), Reply.PRECONDITION_FAILED)
