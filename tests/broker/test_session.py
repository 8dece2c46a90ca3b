import itertools

import pytest

from txbroker.broker.session import TRANSITIONS, Session, SessionAction, SessionInput, SessionState, input_of
from txbroker.wire.messages import Hello, Ping, Send
from txbroker.wire.secret import Secret

PAIRS = list(itertools.product(SessionState, SessionInput))


def a_session(state=SessionState.OPEN):
    session = Session(1, Secret(b"s"), "peer", lambda data: None, lambda reason: None, 0)
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


def test_only_a_hello_opens_and_only_an_open_session_is_served():
    opening = [pair for pair, (state, _) in TRANSITIONS.items() if state is SessionState.OPEN]
    assert opening == [
        (SessionState.AWAITING_HELLO, SessionInput.HELLO),
        (SessionState.OPEN, SessionInput.REQUEST),
    ]
    served = [pair for pair, (_, action) in TRANSITIONS.items() if action is SessionAction.HANDLE]
    assert served == [(SessionState.OPEN, SessionInput.REQUEST)]


def test_commands_are_hellos_or_requests():
    assert input_of(Hello(1, "txbroker", [1])) is SessionInput.HELLO
    assert input_of(Ping(1)) is input_of(Send(1, 1)) is SessionInput.REQUEST


def test_a_drained_session_goes_on_with_its_fetches_if_it_has_any():
    session = a_session()
    drained = []
    session.on_drained = drained.append
    session.congested = True
    session.congested = False
    assert drained == []
    session.fetches["one"] = None
    session.congested = True
    assert drained == []
    session.congested = False
    assert drained == [session]
