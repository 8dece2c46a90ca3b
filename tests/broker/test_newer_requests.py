"""Test what a newer client is told by this broker: its request is refused by name, and its connection stays."""

from __future__ import annotations

import msgspec
import pytest

from journal.formats.version import PROGRAM
from tests.support.broker_process import told_broker
from tests.support.peer import Peer
from txbroker.errors import PeerViolation
from txbroker.wire.codec import request_decoder
from txbroker.wire.framing import encode
from txbroker.wire.messages import Done, Hello, Ping, Refused, Send
from txbroker.wire.newer_request import LENGTHS, NewerRequest, refuse_newer

UNKNOWN = max(LENGTHS) + 1


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with told_broker(tmp_path_factory.mktemp("newer") / "data") as process:
        process.ready()
        yield process


def head(*elements: object) -> bytes:
    """The bytes of a message with such a head, without data."""
    packed = msgspec.msgpack.encode(list(elements))
    return encode(msgspec.Raw(packed))  # type: ignore[arg-type]


def read(*elements: object) -> object:
    [(found, _)] = request_decoder(1 << 20).feed(head(*elements))
    return found


def test_a_kind_that_is_not_known_stands_for_itself():
    assert read(UNKNOWN, 7) == NewerRequest(7, UNKNOWN)
    assert read(UNKNOWN, 7, "whatever", [1, {"a": None}], b"x" * 1000) == NewerRequest(7, UNKNOWN)


@pytest.mark.parametrize("extra", [1, 2, 20, 70_000])
def test_one_with_more_fields_than_are_known_is_not_read_as_the_older_one(extra):
    """Seen with the extra fields passed over: what they asked for was left out without a word."""
    known = [3, 7, 1, 0, 0, 0]
    assert read(*known) == Send(7, 1, 0, 0, 0)
    assert read(*known, *[0] * extra) == NewerRequest(7, 3, extra)


@pytest.mark.parametrize(
    "elements",
    [
        (),
        (3,),
        ("3", 7),
        (3, "7"),
        (3, 7, "x"),
        (UNKNOWN,),
        (UNKNOWN, "7"),
        (3, 7, 1, "0", 0, 0),
    ],
    ids=repr,
)
def test_what_is_wrong_in_another_way_is_a_violation(elements):
    with pytest.raises(PeerViolation, match="a head is not one of the protocol's"):
        read(*elements)


def test_the_requests_before_and_behind_it_in_the_same_bytes_are_read():
    whole = encode(Ping(1)) + head(UNKNOWN, 2, [3]) + encode(Ping(3))
    found = request_decoder(1 << 20).feed(whole)
    assert [each for each, _ in found] == [Ping(1), NewerRequest(2, UNKNOWN), Ping(3)]


def test_the_refusal_says_which_broker_it_is_and_what_to_do():
    assert str(refuse_newer(NewerRequest(1, UNKNOWN))) == (
        f"this broker, txbroker {PROGRAM}, does not know requests of kind {UNKNOWN}: the client is newer than the "
        "broker. Nothing has changed. Upgrade the broker first, or do without what was called (docs/upgrading.md)"
    )
    assert "does not know 2 fields of a request of kind 3" in str(refuse_newer(NewerRequest(1, 3, 2)))


@pytest.mark.slow
def test_a_running_broker_refuses_it_and_goes_on_with_the_connection(broker):
    """Seen with the connection closed: the client connected again, asked again, and so on for its whole time-out."""
    with Peer(broker.port) as peer:
        for elements in ((UNKNOWN, 100, "new"), (2, 101, "a field of a ping")):
            peer.socket.sendall(head(*elements))
            answer, _ = peer.read()
            assert isinstance(answer, Refused)
            assert (answer.correlation, answer.error) == (elements[1], "VersionRefused")
            assert "the client is newer than the broker" in answer.message
        assert peer.ask(Ping) == Done(peer.correlation)


@pytest.mark.slow
def test_before_a_login_it_is_a_violation_as_any_other_request(broker):
    with Peer(broker.port, hello=False) as peer:
        peer.socket.sendall(head(UNKNOWN, 100, "new"))
        answer, _ = peer.read()
        assert answer.error == "PeerViolation"
        assert peer.is_closed()


def test_a_hello_has_the_fields_that_it_had_in_the_first_release():
    """It is the one request that must never grow: the version is agreed by it."""
    assert Hello.__struct_fields__ == ("correlation", "magic", "versions", "client")
