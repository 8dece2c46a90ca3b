"""Test methods: their bytes are those of pamqp, in both directions, and hostile arguments are one kind of error."""

import pamqp.commands
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.amqp.amqp_bytes import ANY_METHOD, NAMES, RESERVED, judged, methods_of, typed
from tests.support.thoroughness import examples
from txbroker.amqp.connection_methods import ChannelOpen, ConnectionClose, ConnectionSecureOk, ConnectionTune
from txbroker.amqp.method_codec import BY_INDEX, decode_method, encode_method
from txbroker.amqp.methods import BasicAck, BasicNack, BasicReject, ExchangeDeclare, QueueDeclareOk
from txbroker.amqp.reply_codes import AmqpError, Reply

KINDS = list(BY_INDEX.values())
PAMQP = {(index >> 16, index & 0xFFFF): kind for index, kind in pamqp.commands.INDEX_MAPPING.items()}

OLD = pytest.mark.filterwarnings("ignore:This command is deprecated:DeprecationWarning")


def arguments_of(method):
    return [getattr(method, name) for name in method.__struct_fields__]


def judged_arguments(payload):
    """The arguments that pamqp finds, in their order: it has other names for some of them."""
    found = PAMQP[int.from_bytes(payload[:2]), int.from_bytes(payload[2:4])]()
    found.unmarshal(payload[4:])
    arguments = []
    for name in found.attributes():
        value = judged(getattr(found, name))
        is_long = found.amqp_type(name) == "longstr"
        arguments.append(value.encode() if is_long and isinstance(value, str) else value)
    return found, arguments


def test_every_method_that_pamqp_knows_is_known():
    assert sorted(BY_INDEX) == sorted(PAMQP)
    assert len(KINDS) > 60


@OLD
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_method_is_to_pamqp_what_it_is_to_us(kind):
    @settings(max_examples=examples(20))
    @given(methods_of(kind))
    def alike(method):
        payload = encode_method(method)
        _, arguments = judged_arguments(payload)
        assert typed(arguments) == typed(arguments_of(method))
        for data in (payload, memoryview(payload)):
            found = decode_method(data)
            assert (type(found), typed(arguments_of(found))) == (kind, typed(arguments))

    alike()


@OLD
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_method_has_the_bytes_that_pamqp_gives_it(kind):
    others = {name: st.just(value) for name, value in RESERVED.items()}
    others |= {
        "ShortText": NAMES,
        "LongText": NAMES.map(str.encode),
        "Fields": st.dictionaries(NAMES, NAMES | st.booleans(), max_size=1),
    }

    @settings(max_examples=examples(20))
    @given(methods_of(kind, **others))
    def the_same(method):
        payload = encode_method(method)
        found, _ = judged_arguments(payload)
        assert found.marshal() == payload[4:]

    the_same()


@pytest.mark.parametrize("bits", range(32))
def test_bits_are_packed_from_the_lowest_one_and_what_follows_is_in_its_place(bits):
    flags = [bool(bits >> n & 1) for n in range(5)]
    method = ExchangeDeclare(0, "e", "fanout", *flags, {"a": 1})
    payload = encode_method(method)
    assert payload == b"\0\x28\0\x0a\0\0\1e\6fanout" + bytes((bits,)) + b"\0\0\0\7\1aI\0\0\0\1"
    assert decode_method(payload) == method


@pytest.mark.parametrize("bits", range(4))
@pytest.mark.parametrize("tag", [0, 1, 1 << 63, (1 << 64) - 1])
def test_acknowledgements_have_their_tag_and_bits(tag, bits):
    low, high = bits & 1 == 1, bits & 2 == 2
    for number, wanted in (
        (80, BasicAck(tag, low)),
        (90, BasicReject(tag, low)),
        (120, BasicNack(tag, low, high)),
    ):
        found = decode_method(b"\0\x3c" + number.to_bytes(2) + tag.to_bytes(8) + bytes((bits,)))
        assert found == wanted
        assert all(isinstance(each, bool) for each in arguments_of(found)[1:])


def test_another_method_of_as_many_bytes_as_an_acknowledgement_is_itself():
    method = ConnectionSecureOk(b"12345")
    assert len(encode_method(method)) == 13
    assert decode_method(encode_method(method)) == method


@pytest.mark.parametrize("index", [(0, 0), (60, 41), (61, 40), (65535, 65535), (30, 10)])
def test_a_method_that_is_none_is_told_by_its_numbers(index):
    payload = index[0].to_bytes(2) + index[1].to_bytes(2)
    for more in (b"", bytes(9), bytes(30)):
        with pytest.raises(AmqpError, match=f"there is no method {index[1]} of class {index[0]}") as caught:
            decode_method(payload + more)
        assert caught.value.reply is Reply.COMMAND_INVALID


@given(ANY_METHOD, st.data())
def test_a_method_that_is_cut_is_a_syntax_error(method, data):
    payload = encode_method(method)
    cut = payload[: data.draw(st.integers(0, len(payload) - 1))]
    for each in (cut, memoryview(cut)):
        with pytest.raises(AmqpError) as caught:
            decode_method(each)
        assert caught.value.reply is Reply.SYNTAX_ERROR


@given(ANY_METHOD, st.binary(min_size=1, max_size=20))
def test_bytes_behind_the_arguments_are_a_syntax_error(method, more):
    with pytest.raises(AmqpError) as caught:
        decode_method(encode_method(method) + more)
    assert caught.value.reply is Reply.SYNTAX_ERROR


def outcome_of(payload):
    try:
        decode_method(payload)
    except AmqpError as error:
        if error.reply not in (Reply.SYNTAX_ERROR, Reply.COMMAND_INVALID):
            raise


@given(ANY_METHOD, st.data())
def test_changed_bytes_make_an_error_or_another_method(method, data):
    payload = bytearray(encode_method(method))
    for _ in range(data.draw(st.integers(1, 3))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    outcome_of(bytes(payload))
    outcome_of(memoryview(payload))


@given(st.sampled_from(sorted(BY_INDEX)), st.binary(max_size=40))
def test_garbage_is_an_error_or_a_method(index, arguments):
    outcome_of(index[0].to_bytes(2) + index[1].to_bytes(2) + arguments)
    outcome_of(arguments)


@pytest.mark.parametrize(
    "payload",
    [
        b"\0\x14\0\x0a\2\xff\xfe",
        b"\0\x14\0\x0a\2a",
        b"\0\x0a\0\x15\xff\xff\xff\xffa",
        b"\0\x0a\0\x15\0\0\0\2a",
        b"\0\x0a\0\x15\0\0",
        b"\0\x32\0\x0a\0\0\0\0\0\0\0\1",
        b"\0\x32\0\x0a\0\0\0",
        b"",
        b"\0\x3c",
    ],
)
def test_arguments_that_cannot_be_are_a_syntax_error(payload):
    for data in (payload, memoryview(payload)):
        with pytest.raises(AmqpError) as caught:
            decode_method(data)
        assert caught.value.reply is Reply.SYNTAX_ERROR


@pytest.mark.parametrize(
    "method",
    [
        ChannelOpen("a" * 256),
        ChannelOpen("\ud800"),
        ConnectionTune(1 << 16, 1, 1),
        ConnectionTune(-1, 1, 1),
        QueueDeclareOk("q", 1 << 32, 0),
        BasicAck(1 << 64, False),
        ConnectionClose(200, "ä" * 128, 0, 0),
        ExchangeDeclare(0, "e", "k", False, False, False, False, False, {"a": 1 << 64}),
    ],
)
def test_arguments_that_do_not_fit_are_a_value_error(method):
    with pytest.raises(ValueError, match=r"."):
        encode_method(method)
