import itertools

import pytest

from journal.parties import Owner
from txbroker.broker.sessions.session import (
    TRANSITIONS,
    Session,
    SessionAction,
    SessionInput,
    SessionState,
    input_of,
)
from txbroker.login.facts import ConnectionFacts
from txbroker.wire.messages import Hello, Login, Ping, Send
from txbroker.wire.secret import Secret

PAIRS = list(itertools.product(SessionState, SessionInput))


def a_session(state=SessionState.OPEN):
    facts = ConnectionFacts(address="peer")
    session = Session(Secret(b"s"), "peer", lambda data: None, lambda reason: None, 0, facts)
    session.state = state
    return session


@pytest.mark.parametrize(("state", "what"), PAIRS)
def test_every_pair_has_a_rule_and_the_session_follows_it(state, what):
    session = a_session(state)
    action = session.step(what)
    assert (session.state, action) == TRANSITIONS[state, what]


@pytest.mark.parametrize("what", SessionInput)
def test_nothing_brings_a_closed_session_back(what):
    assert TRANSITIONS[SessionState.CLOSED, what] == (SessionState.CLOSED, SessionAction.IGNORE)


def test_only_a_login_opens_and_only_an_open_session_is_served():
    opening = [pair for pair, (state, _) in TRANSITIONS.items() if state is SessionState.OPEN]
    assert sorted(opening, key=str) == [
        (SessionState.LOGGING_IN, SessionInput.PROVEN),
        (SessionState.OPEN, SessionInput.LOGIN),
        (SessionState.OPEN, SessionInput.PROVEN),
        (SessionState.OPEN, SessionInput.REQUEST),
    ]
    served = [pair for pair, (_, action) in TRANSITIONS.items() if action is SessionAction.HANDLE]
    assert served == [(SessionState.OPEN, SessionInput.REQUEST)]


def test_commands_are_hellos_logins_or_requests():
    assert input_of(Hello(1, "txbroker", [1])) is SessionInput.HELLO
    assert input_of(Login(1, "ANONYMOUS")) is SessionInput.LOGIN
    assert input_of(Ping(1)) is input_of(Send(1, 1)) is SessionInput.REQUEST


def test_a_session_has_no_number_and_nobodys_producers_until_its_client_has_logged_in():
    session = a_session(SessionState.LOGGING_IN)
    assert (session.number, session.producer_owner) == (0, Secret(b"s").owner("anonymous"))
    session.client = "billing"
    session.begin(7, "alice", None)
    assert (session.number, session.owner) == (7, Owner("alice", "billing", "peer"))
    assert (session.secret, session.producer_owner) == (Secret(b"s"), Secret(b"s").owner("alice"))
    session.begin(8, "alice", Secret(b"t"))
    assert (session.secret, session.producer_owner) == (Secret(b"t"), Secret(b"t").owner("alice"))


def test_a_drained_session_goes_on():
    session = a_session()
    drained = []
    session.on_drained = drained.append
    session.congested = True
    assert drained == []
    session.congested = False
    assert drained == [session]
