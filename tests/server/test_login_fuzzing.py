"""Throw bytes at a broker before any login, over real sockets: it stays up, lets nobody in, and says why in its types.

What is thrown are true beginnings, changed: hellos, logins of every mechanism, requests, PROXY headers, TLS; cut off,
put together, with bytes changed. ``FUZZ_SEED`` in the environment chooses others.
"""

import contextlib
import os
import random
import re
import socket
import ssl
import struct

import pytest

from journal.constants import MIB
from tests.server.test_access import PASSWORDS, Scene
from tests.support.broker_process import PATIENCE, told_broker
from tests.support.certificates import Folder
from txbroker import errors
from txbroker.wire import messages
from txbroker.wire.codec import answer_decoder, encode
from txbroker.wire.messages import MAGIC, VERSIONS, Hello, Login, Offered, Refused

pytestmark = pytest.mark.slow

SEED = int(os.environ.get("FUZZ_SEED", "20"))
THROWS = 1_000
HELLO = encode(Hello(1, MAGIC, list(VERSIONS), "tester"))

LOGINS = {
    "PLAIN": [b"\0app\0wrong", b"app\0root1\0" + b"x" * 100, b"\0\0", b"\0app", b"", b"\0" * 5000,
        b"\xff\xfe\0\xff\0\xff"],
    "SCRAM-SHA-256": [
        b"n,,n=app,r=abcdefghijklmnop", b"y,,n=app,r=", b"p=tls-server-end-point,,n=app,r=abc", b"n,a=root1,n=app,r=x",
        b"n,,n=a=2Cb=3D,r=x,m=1", b"n,,", b"", b"n,,n=" + b"a" * 4000 + b",r=x", b"c=biws,r=abc,p=AAAA",
    ],
    "SCRAM-SHA-256-PLUS": [b"p=tls-server-end-point,,n=app,r=abcdefghijklmnop", b"p=tls-unique,,n=app,r=abc"],
    "OAUTHBEARER": [
        b"n,,\x01auth=Bearer a.b.c\x01\x01", b"n,a=app,\x01auth=Bearer \x01\x01", b"\x01",
        b"n,,\x01auth=Bearer " + b"a" * 16_000 + b"\x01\x01", b"n,,\x01auth=Bearer eyJhbGciOiJub25lIn0.e30.\x01\x01",
    ],
    "EXTERNAL": [b"", b"app", b"\xff"],
    "ANONYMOUS": [b"", b"trace"],
    "": [b"", b"c=biws"],
    "X" * 60_000: [b""],
    "\ud7ff\x00": [b"\0"],
}  # fmt: skip


def known_types():
    return {name for name in vars(errors) if isinstance(getattr(errors, name), type)}


def beginnings(chance):
    """Return what one peer says, before it is changed: messages in a good order, or in a wrong one."""
    mechanism = chance.choice([*LOGINS])
    steps = [encode(Login(2, mechanism, chance.choice(LOGINS[mechanism])))]
    if chance.random() < 0.5:
        steps.append(
            encode(Login(3, "", chance.choice([data for found in LOGINS.values() for data in found])))
        )
    others = [
        encode(messages.Ping(4)),
        encode(messages.Send(4, 1), bytes(chance.choice([0, 10, 9000]))),
        encode(messages.DescribeTopics(4, None)),
        encode(messages.ListSessions(4)) if hasattr(messages, "ListSessions") else b"",
        HELLO,
        struct.pack(">II", chance.choice([0, 8, 2**31, 2**32 - 1]), chance.choice([0, 8, 2**31])),
        b"PROXY TCP4 192.0.2.9 10.0.0.1 4711 7654\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + chance.randbytes(40),
        chance.randbytes(chance.choice([1, 40, 9000])),
    ]
    said = [HELLO, *steps]
    match chance.randrange(6):
        case 0:
            said.insert(chance.randrange(3), chance.choice(others))
        case 1:
            chance.shuffle(said)
        case 2:
            said = [HELLO, chance.choice(others)]
        case 3:
            said += [HELLO, *steps, chance.choice(others)]
    return said


def changed(chance, data):
    """Change some bytes, cut some out, double some, or leave all as it is."""
    data = bytearray(data)
    for _ in range(chance.choice([0, 0, 1, 1, 2, 8])):
        if not data:
            break
        place = chance.randrange(len(data))
        match chance.randrange(4):
            case 0:
                data[place] ^= 1 << chance.randrange(8)
            case 1:
                data[place] = chance.choice(b"\x00\x01\x7f\x80\xff")
            case 2:
                del data[place : place + chance.randrange(1, 9)]
            case 3:
                data[place:place] = data[place : place + chance.randrange(1, 40)]
    return bytes(data)


def throw(chance, connection):
    """Say something and hear what comes, until the broker has closed or has nothing more to say; return the answers."""
    decoder, found = answer_decoder(1 << 20), []
    with contextlib.suppress(OSError):  # of TLS, too
        for piece in beginnings(chance):
            data = changed(chance, piece)
            cut = chance.randrange(len(data) + 1) if chance.random() < 0.2 else len(data)
            connection.sendall(data[:cut])
            if cut < len(data) and chance.random() < 0.5:
                break
            connection.sendall(data[cut:])
        if chance.random() < 0.8 and not isinstance(connection, ssl.SSLSocket):
            connection.shutdown(socket.SHUT_WR)
        connection.settimeout(0.05)
        while data := connection.recv(1 << 16):
            found += [answer for answer, _ in decoder.feed(data)]
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return Folder(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def scene(tmp_path_factory, folder):
    data = tmp_path_factory.mktemp("fuzzed") / "data"
    words = ("--listen", "tcp:0:interface=127.0.0.1", "--listen", folder.endpoint(clients="optional"))
    with told_broker(data, *words, "--set", "hello_timeout=1s") as process:
        process.ready()
        port = re.search(r"[=,]tcp:127\.0\.0\.1:(\d+)", process.ready_line)[1]
        yield Scene(process, data, f"tcp:127.0.0.1:{port}")


def judged(scene, answers):
    """Nobody is in, and whoever is refused is told so by a type that clients know."""
    allowed = known_types()
    for answer in answers:
        assert isinstance(answer, Offered | messages.Challenge | Refused), answer
        if isinstance(answer, Refused):
            assert answer.error in allowed
            assert 0 < len(answer.message) < 2_000
            assert not any(password in answer.message for password in PASSWORDS.values())


def is_well(scene, before):
    """The broker lets in who may, has grown by little, and has logged no failure of its own."""
    with scene.connect("root1") as admin:
        assert {session.principal for session in admin.sessions()} <= {"root1"}
    assert scene.process.resident_bytes() - before < 40 * MIB
    assert "Traceback" not in scene.process.output
    assert "the broker failed" not in scene.process.output


def test_whatever_is_thrown_at_it_nobody_is_in_and_it_goes_on(scene):
    chance = random.Random(SEED)
    host, port = "127.0.0.1", int(scene.url.rpartition(":")[2])
    before = scene.process.resident_bytes()
    refused = set()
    for _ in range(THROWS):
        with socket.create_connection((host, port), PATIENCE) as connection:
            answers = throw(chance, connection)
        judged(scene, answers)
        refused.update(answer.error for answer in answers if isinstance(answer, Refused))
    assert {"VersionRefused", "PeerViolation"} & refused
    is_well(scene, before)


def test_the_same_over_tls(scene, folder):
    chance = random.Random(SEED + 1)
    port = int(scene.process.ready_line.partition("tls:127.0.0.1:")[2].split()[0])
    context = ssl.create_default_context(cafile=folder.file("ca.pem"))
    before = scene.process.resident_bytes()
    for _ in range(THROWS // 5):
        with (
            socket.create_connection(("127.0.0.1", port), PATIENCE) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as secure,
        ):
            judged(scene, throw(chance, secure))
    is_well(scene, before)


def test_broken_handshakes_cost_their_connections(scene, folder):
    """Records of a true handshake, changed, and garbage in the place of one."""
    chance = random.Random(SEED + 2)
    port = int(scene.process.ready_line.partition("tls:127.0.0.1:")[2].split()[0])
    before = scene.process.resident_bytes()
    outgoing = ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    hello = outgoing.read()
    for _ in range(THROWS // 5):
        with socket.create_connection(("127.0.0.1", port), PATIENCE) as connection:
            said = chance.choice(
                [changed(chance, hello), hello + chance.randbytes(200), chance.randbytes(300), HELLO]
            )
            with contextlib.suppress(ConnectionError, TimeoutError):
                connection.sendall(said[: chance.randrange(len(said) + 1)] if chance.random() < 0.3 else said)
                connection.shutdown(socket.SHUT_WR)
                connection.settimeout(2.0)
                while data := connection.recv(1 << 16):
                    assert data[0] in (0x14, 0x15, 0x16, 0x17) or not data.startswith(b"\x00\x00")
    is_well(scene, before)


def test_a_login_of_any_mechanism_with_garbage_is_refused_as_a_wrong_one_is(scene):
    """Each mechanism is gone through with each of its wrong messages; all at once, for refusals are held back."""
    place, refused = ("127.0.0.1", int(scene.url.rpartition(":")[2])), set()
    with contextlib.ExitStack() as stack:
        peers = []
        for mechanism, wrongs in LOGINS.items():
            for wrong in wrongs:
                peers.append(stack.enter_context(socket.create_connection(place, PATIENCE)))
                peers[-1].sendall(HELLO + encode(Login(2, mechanism, wrong)))
        for peer in peers:
            decoder, found = answer_decoder(1 << 20), []
            while len(found) < 2 and (data := peer.recv(1 << 16)):
                found += [answer for answer, _ in decoder.feed(data)]
            judged(scene, found)
            assert isinstance(found[-1], Refused | messages.Challenge)
            refused.add(getattr(found[-1], "error", ""))
    assert refused >= {"AuthenticationFailed", "PeerViolation"}
