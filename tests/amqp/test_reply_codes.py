"""Test the errors of AMQP: what a peer is told fits into a close, and whether its connection ends."""

import pytest
from pamqp.exceptions import CLASS_MAPPING, AMQPHardError

from txbroker.amqp.connection_methods import ConnectionClose
from txbroker.amqp.method_codec import decode_method, encode_method
from txbroker.amqp.reply_codes import AmqpError, Reply


@pytest.mark.parametrize("text", ["no queue 'q'", "", "a" * 1_000, "é" * 300, "aé" * 200, "\U0001f600" * 100])
def test_what_is_told_fits_into_a_close_and_is_cut_between_characters(text):
    whole = f"NOT_FOUND - {text}"
    told = AmqpError(Reply.NOT_FOUND, text).told
    assert whole.startswith(told)
    assert told == whole or 251 < len(told.encode()) <= 255
    close = ConnectionClose(Reply.NOT_FOUND, told, 0, 0)
    assert decode_method(encode_method(close)) == close


def test_an_error_says_where_and_what():
    error = AmqpError(Reply.FRAME_ERROR, "why", 7)
    assert (str(error), error.text, error.channel, error.method) == ("why", "why", 7, (0, 0))
    assert AmqpError(Reply.FRAME_ERROR, "why").channel is None


@pytest.mark.parametrize(
    "reply", [each for each in Reply if each is not Reply.SUCCESS], ids=lambda each: each.name
)
def test_what_ends_a_connection_is_what_pamqp_calls_a_hard_error(reply):
    """But for a lack of resources, which costs the channel only."""
    judged = CLASS_MAPPING[reply]
    assert judged.name == reply.name.replace("_", "-")
    assert reply.ends_connection == (issubclass(judged, AMQPHardError) and reply is not Reply.RESOURCE_ERROR)
