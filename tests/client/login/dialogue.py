"""Logins of the client's side on the broker's, message by message."""

from tests.login.login_room import TLS
from txbroker.login.outcomes import Challenge, Pending


def dialogue(client, room, facts=TLS):
    """Let the client log in; return the broker's outcome, which the client has verified if it is good news."""
    broker = room.begin(client.mechanism, facts)
    outcome = broker.step(client.first())
    while isinstance(outcome, Challenge):
        outcome = broker.step(client.answer(outcome.data))
    if isinstance(outcome, Pending):
        room.worker.step()
        outcome = room.outcomes.pop()
    if hasattr(outcome, "principal"):
        client.finish(outcome.data)
    return outcome
