"""Test peers that misbehave, over real sockets: each costs only its own connection, a log line, and little memory."""

import contextlib
import os
import resource
import selectors
import socket
import struct

import pytest

from journal.constants import MIB
from tests.support.broker_process import PATIENCE, told_broker
from tests.support.peer import Peer, frames
from txbroker.server.connections.line_limit import BURST
from txbroker.server.connections.strangers import MAX_STRANGERS
from txbroker.wire.codec import encode
from txbroker.wire.messages import (
    MAGIC,
    VERSIONS,
    Done,
    Fetch,
    Fetched,
    Hello,
    Login,
    Ping,
    Refused,
    Send,
    Sent,
)

pytestmark = pytest.mark.slow

HELLO = encode(Hello(1, MAGIC, list(VERSIONS)))
SEND = encode(Send(2, 1), bytes(MIB))

GARBAGE = {
    "http": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + os.urandom(500),
    "a length of 4 GiB": b"\xff" * 64,
    "no length": bytes(64),
    "a head longer than the message": struct.pack(">II", 40, 4000) + bytes(100),
    "data longer than the message": HELLO[:-4] + b"\x00\x01\x00\x00",
    "a head that is not msgpack": struct.pack(">II", 24, 16) + b"\xc1" * 16 + bytes(4),
    "2 GiB claimed in ten bytes": struct.pack(">IIH", 2**31 + 8, 2**31, 0),
    "a string of 2 GiB claimed in the head": struct.pack(">II", 15, 7)
    + b"\x94\x01\xdb\x7f\xff\xff\xff"
    + bytes(4),
}
"""What comes first on a connection."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    options = ("hello_timeout=1s", "message_timeout=1s", "unsent_timeout=2s", "max_sessions=300")
    settings = [word for option in options for word in ("--set", option)]
    with told_broker(tmp_path_factory.mktemp("hostile") / "data", *settings) as process:
        yield process


@pytest.fixture
def port(broker):
    return broker.ready()


@pytest.fixture
def witness(port):
    """A peer that behaves, connected all the while."""
    with Peer(port) as peer:
        yield peer
        assert peer.ask(Ping) == Done(peer.correlation), "what others do is no affair of this one"


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
def test_what_is_not_the_protocol_closes_the_connection_and_is_logged_with_the_peer(
    broker, port, witness, garbage
):
    with Peer(port, hello=False) as peer:
        peer.socket.sendall(garbage)
        assert peer.is_closed()
        broker.wait_for(f"dropping {peer.name}: .")


def test_many_who_have_not_logged_in_do_not_fill_the_log(tmp_path):
    """Seen to fail: each had a line, 27 GB a day at 1,800 connections a second."""
    with told_broker(tmp_path / "data", "--set", "file_bytes=4MiB") as broker:
        port = broker.ready()
        for _ in range(5 * BURST):
            with Peer(port, hello=False) as peer:
                peer.socket.sendall(GARBAGE["http"])
                assert peer.is_closed()
        broker.wait_for(r"left out \d+ lines about connections that had not logged in")
        assert BURST <= broker.output.count("dropping ") < 3 * BURST
        with Peer(port) as peer:
            peer.socket.sendall(GARBAGE["http"])
            assert peer.is_closed()
            broker.wait_for(f"dropping {peer.name}: .")


def test_the_same_after_a_good_beginning(broker, port, witness):
    with Peer(port) as peer:
        peer.socket.sendall(GARBAGE["http"])
        answer, _ = peer.read()
        assert isinstance(answer, Refused)
        assert answer.error == "PeerViolation"
        assert peer.is_closed()
        broker.wait_for(f"dropping {peer.name}: .")


@pytest.mark.parametrize(
    ("hello", "error"),
    [
        (Hello(1, "kafka", [1]), "PeerViolation"),
        (Hello(1, MAGIC, [99]), "VersionRefused"),
        (Ping(1), "PeerViolation"),
    ],
    ids=["magic", "version", "no hello"],
)
def test_a_wrong_hello_is_refused_with_the_reason(broker, port, witness, hello, error):
    with Peer(port, hello=False) as peer:
        peer.socket.sendall(encode(hello))
        answer, _ = peer.read()
        assert (type(answer), answer.correlation, answer.error) == (Refused, 1, error)
        assert peer.is_closed()
        broker.wait_for(f"closing {peer.name}: .")


def test_frames_with_a_wrong_checksum_are_refused_and_the_connection_goes_on(port, witness):
    with Peer(port) as peer:
        partition = peer.topic()
        good = frames(b"good")
        answer = peer.ask(Send, partition, data=good[:-1] + b"?")
        assert (type(answer), answer.error) == (Refused, "InvalidFrame")
        assert isinstance(peer.ask(Send, partition, data=good), Sent)


def test_a_peer_that_says_nothing_is_dropped(broker, port, witness):
    with Peer(port, hello=False) as peer:
        assert peer.is_closed()
        broker.wait_for(f"dropping {peer.name}: .*has not logged in within 1 s")


def test_a_peer_that_sends_a_byte_now_and_then_is_dropped(broker, port, witness):
    with Peer(port) as peer:
        drip(peer.socket, SEND)
        assert peer.is_closed()
        broker.wait_for(f"dropping {peer.name}: .*not the rest in 1 s")


def drip(connection, data):
    """One byte at a time, ten a second, until the other side has had enough."""
    answered = selectors.DefaultSelector()
    answered.register(connection, selectors.EVENT_READ)
    for byte in data:
        with contextlib.suppress(ConnectionError):
            connection.send(bytes([byte]))
        if answered.select(0.1):
            return
    pytest.fail("it took everything")


def test_a_peer_that_asks_for_much_and_reads_nothing_is_dropped_and_costs_little(broker, port, witness):
    partition = witness.topic("large")
    for _ in range(16):
        assert isinstance(witness.ask(Send, partition, data=frames(os.urandom(MIB - 1000))), Sent)
    before = broker.resident_bytes()
    with Peer(port) as peer:
        peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        for number in range(16):
            peer.socket.sendall(encode(Fetch(number, [(partition, 0, 0)], 16 * MIB)))
        broker.wait_for(f"dropping {peer.name}: it has read nothing")
    assert broker.resident_bytes() - before < 100 * MIB


def test_a_slow_reader_gets_everything(port, witness):
    partition = witness.topic("slow")
    values = [bytes([number]) * 500_000 for number in range(10)]
    for value in values:
        assert isinstance(witness.ask(Send, partition, data=frames(value)), Sent)
    with Peer(port) as peer:
        peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)
        assert peer.values(partition) == values
        peer.say(Fetch, [(partition, 0, 0)], 16 * MIB)
        answer, data = peer.read()
        assert isinstance(answer, Fetched)
        assert len(data) > 5_000_000


def test_over_the_limit_sessions_are_told_so_and_the_others_go_on(broker, port, witness):
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(Peer(port)) for _ in range(299)]
        for _ in range(20):
            peer = stack.enter_context(Peer(port, hello=False))
            peer.socket.sendall(HELLO + encode(Login(2, "ANONYMOUS")))
            (_, _), (answer, _) = peer.read(), peer.read()
            assert (type(answer), answer.correlation, answer.error) == (Refused, 2, "LimitExceeded")
            assert "300 sessions (max_sessions)" in answer.message
            assert peer.is_closed()
        broker.wait_for(f"closing {peer.name}: there are 300 sessions")
        assert all(peer.ask(Ping) == Done(peer.correlation) for peer in held)


def test_strangers_over_their_limit_are_told_so_and_those_who_have_logged_in_go_on(broker, port, witness):
    with contextlib.ExitStack() as stack:
        strangers = [stack.enter_context(Peer(port, hello=False)) for _ in range(MAX_STRANGERS + 20)]
        answer, _ = strangers[-1].read()
        assert (type(answer), answer.correlation, answer.error) == (Refused, 0, "LimitExceeded")
        assert f"{MAX_STRANGERS} connections have not logged in yet" in answer.message
        assert witness.ask(Ping) == Done(witness.correlation)
        broker.wait_for("refused [0-9]+ connections: there are")
        assert all(peer.is_closed() for peer in strangers), "they had a second"
    with Peer(port) as later:
        assert later.ask(Ping) == Done(later.correlation)


def test_unfinished_messages_of_many_peers_stay_within_a_bound(broker, port, witness):
    """250 peers × 1 MiB would be 250 MiB; 64 MiB may be unfinished, and a busy machine copies some of it twice."""
    before = broker.resident_bytes()
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(Peer(port)) for _ in range(250)]
        for peer in peers:
            peer.socket.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                peer.socket.send(SEND[:-1])
        assert witness.ask(Ping) == Done(witness.correlation)
        assert broker.resident_bytes() - before < 180 * MIB
        for peer in peers:
            peer.socket.settimeout(PATIENCE)
        assert all(peer.is_closed() for peer in peers), "none of them ever finished"


def test_ten_thousand_connections_do_not_keep_one_more_from_working(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(10_000, hard - 1000)
    with (
        told_broker(tmp_path / "data", "--set", "hello_timeout=60s") as broker,
        contextlib.ExitStack() as stack,
    ):
        port = broker.ready()
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted + 500, hard))
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        before = broker.resident_bytes()
        for _ in range(wanted):
            stack.enter_context(Peer(port).socket)
        with Peer(port) as peer:
            assert isinstance(peer.ask(Send, peer.topic(), data=frames(b"still here")), Sent)
        per_connection = (broker.resident_bytes() - before) / wanted
        assert per_connection < 20_000
        broker.stop()


def test_connections_never_take_the_file_descriptors_that_the_journal_needs(tmp_path):
    options = ("--set", "open_files=100", "--set", "checkpoint_interval=1s")
    with told_broker(tmp_path / "data", *options, descriptors=700) as broker:
        port = broker.ready()
        broker.wait_for("700 open files, so there can be 216 connections")
        with contextlib.ExitStack() as stack:
            first = stack.enter_context(Peer(port))
            partition = first.topic()
            for _ in range(800):
                stack.enter_context(socket.create_connection(("127.0.0.1", port), PATIENCE))
            for _ in range(80):
                assert isinstance(first.ask(Send, partition, data=frames(bytes(MIB))), Sent)
        broker.wait_for("refused [0-9]+ connections")
        broker.stop()
