"""Strangers that show the session of a client: each must be refused, without any effect on the client."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from journal.records.record import NONCE_BYTES
from tests.simulation.clients.administrators import Administrator
from tests.simulation.model.log_model import require
from tests.simulation.world.world import World
from tests.support.broker_room import opening
from txbroker.wire import messages
from txbroker.wire.codec import answer_decoder, encode
from txbroker.wire.secret import SECRET_BYTES, Secret


def turn_away(world: World) -> None:
    """Let strangers log in with what each client would show, one thing of it changed. Nothing else is going on."""
    expected = (
        "BrokerReplaced",
        "LimitExceeded",
        *(["AuthenticationFailed"] if world.administrators else []),
    )
    for client in list(world.clients):
        if client.former is None:
            continue
        connection, goes_on = client.connection, client.ready
        for what, shown in _changed(world, client.former):
            told = _told(world, shown)
            world.count(f"strangers told {told}")
            require(
                told in expected,
                f"a stranger with another {what} is refused",
                told,
            )
        stays = client.connection is connection and (connection is None or not connection.broker_gone)
        require(stays or not goes_on, f"{client.name} keeps its session", "the broker has closed it")


def _changed(world: World, former: messages.FormerSession) -> list[tuple[str, messages.FormerSession]]:
    found = [
        ("nonce", replace(former, start=bytes(NONCE_BYTES))),
        ("start's number", replace(former, session=former.session + (1 << 32))),
    ]
    if former.session >> 32 == world.engine.start_number:
        found.append(("number", replace(former, session=former.session + (1 << 20))))
    if former.session in world.serving.broker.sessions:  # the secret of one that has ended is not asked for
        found.append(("secret", replace(former, secret=Secret(bytes(SECRET_BYTES)))))
        if world.administrators:
            found.append(("principal", former))
    return found


def _told(world: World, shown: messages.FormerSession) -> str:
    """What a stranger is told; where clients have rights it is the administrator, so that it is let in at all."""
    decoder = answer_decoder(1 << 20)
    if world.administrators:
        stranger = world.connect(Administrator.facts)
        hello = messages.Hello(1, messages.MAGIC, list(messages.VERSIONS), "stranger")
        stranger.to_broker += encode(hello) + encode(messages.Login(2, Administrator.mechanism, b"", shown))
    else:
        stranger = world.connect()
        stranger.to_broker += opening("stranger", shown)
    world.pump()
    answers: list[Any] = [
        answer for answer, _ in decoder.feed(stranger.take(1 << 30)) if type(answer) is not messages.Offered
    ]
    stranger.leave(0)
    world.pump()
    return getattr(answers[0], "error", type(answers[0]).__name__) if answers else "nothing"
