"""Test over the wire that the time of an answer does not tell whether there is such a user.

Attempts come in pairs, one for a user and one for nobody, in an order by chance, so that a noisy machine is noisy for
both. Each comes from an address of its own, so that none is held back for those before it. A difference counts only if
it is of one sign in nearly all pairs, and large enough to be measured from outside.
"""

import itertools
import math
import random
import socket
import statistics
import time

import pytest

import txbroker
from journal.records.access_entries import Effect, Resource, Right, Rule, User
from tests.support.broker_process import PATIENCE, told_broker
from txbroker.client.login.verifier import verifier_of
from txbroker.wire.codec import answer_decoder, encode
from txbroker.wire.messages import MAGIC, VERSIONS, Challenge, Hello, Login, Offered, Refused, Switch

pytestmark = pytest.mark.slow

SIGMAS = 4.5
"""By how many standard deviations of a fair coin one of both may be the slower one: one run in 150,000 is beyond."""
TELLING = 0.002
"""Seconds. A password's check takes ten times as long."""


@pytest.fixture(scope="module")
def port(tmp_path_factory):
    data = tmp_path_factory.mktemp("timed") / "data"
    with told_broker(data) as process:
        port = process.ready()
        with txbroker.connect(f"unix:{data}/admin.sock", timeout=10) as admin:
            admin.add_user(User("root1", verifier_of("a password")))
            admin.allow(Rule("root1", Effect.ALLOW, Resource.BROKER, "", False, [Right.ADMINISTER]))
            admin.switch_access(Switch.ENABLE)
        yield port


ADDRESSES = (f"127.{a}.{b}.{c}" for a, b, c in itertools.product(range(1, 200), range(1, 200), range(1, 200)))


def attempt(port, login, kind):
    """Return how many seconds a login takes to be answered."""
    source = (next(ADDRESSES), 0)
    with socket.create_connection(("127.0.0.1", port), PATIENCE, source_address=source) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        decoder = answer_decoder(1 << 20)
        connection.sendall(encode(Hello(1, MAGIC, list(VERSIONS), "tester")))
        assert isinstance(heard(connection, decoder), Offered)
        began = time.perf_counter()
        connection.sendall(encode(Login(2, *login)))
        assert isinstance(heard(connection, decoder), kind)
        return time.perf_counter() - began


def heard(connection, decoder):
    found = []
    while not found:
        found = decoder.feed(connection.recv(1 << 16))
    return found[0][0]


def tells(pairs):
    """Whether pairs of times tell which is which: by their sign, and by more than a clock over a network sees."""
    differences = [one - other for one, other in pairs]
    slower = sum(difference > 0 for difference in differences)
    sigma = math.sqrt(len(pairs)) / 2
    is_sure = abs(slower - len(pairs) / 2) > min(SIGMAS * sigma, len(pairs) / 2 - 1)
    return is_sure and abs(statistics.median(differences)) > TELLING


def timed(number, user, nobody):
    chance = random.Random(20)
    pairs = []
    for _ in range(number):
        calls = [user, nobody]
        order = chance.choice([(0, 1), (1, 0)])
        times = {which: calls[which]() for which in order}
        pairs.append((times[0], times[1]))
    return pairs


def plain(name):
    return "PLAIN", f"\0{name}\0{random.random()}".encode()


def scram(name):
    return "SCRAM-SHA-256", f"n,,n={name},r=abcdefghijklmnopqrst".encode()


def test_a_wrong_password_takes_as_long_as_one_of_nobody(port):
    pairs = timed(
        40,
        lambda: attempt(port, plain("root1"), Refused),
        lambda: attempt(port, plain("root2"), Refused),
    )
    assert not tells(pairs), pairs
    assert min(min(pair) for pair in pairs) > 0.24, "a refusal is held back for a quarter of a second"


def test_a_challenge_for_a_user_takes_as_long_as_one_for_nobody(port):
    pairs = timed(
        200,
        lambda: attempt(port, scram("root1"), Challenge),
        lambda: attempt(port, scram("root2"), Challenge),
    )
    assert not tells(pairs), pairs


def test_the_comparison_sees_what_it_is_for():
    noise = random.Random(1)
    same = [(noise.expovariate(20), noise.expovariate(20)) for _ in range(40)]
    assert not tells(same)
    assert tells([(one + 0.2, other) for one, other in same])
    quiet = [(noise.gauss(0.26, 0.003), noise.gauss(0.25, 0.003)) for _ in range(40)]
    assert tells(quiet)
    assert tells([(other, one) for one, other in quiet])
