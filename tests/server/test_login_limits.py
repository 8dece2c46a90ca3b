"""Test at a real broker what strangers cannot do: keep out users or the administrator, take places of sessions."""

import contextlib
import socket

import pytest

import txbroker
from tests.server.test_access import Scene
from tests.support.broker_process import PATIENCE, told_broker
from tests.support.peer import Peer
from tests.support.waiting import eventually
from txbroker import errors
from txbroker.server.connections.strangers import MAX_STRANGERS

pytestmark = pytest.mark.slow

SESSIONS = 3


@pytest.fixture
def scene(tmp_path):
    """A broker for a few sessions, into which strangers come and stay."""
    settings = ("--set", f"max_sessions={SESSIONS}", "--set", "hello_timeout=60s")
    with told_broker(tmp_path / "data", *settings) as process:
        url = f"tcp:127.0.0.1:{process.ready()}"
        yield Scene(process, tmp_path / "data", url)


def strangers(stack, port, number):
    return [
        stack.enter_context(socket.create_connection(("127.0.0.1", port), PATIENCE)) for _ in range(number)
    ]


def test_strangers_take_no_place_of_a_session(scene):
    """There may be three sessions, and there are two hundred strangers: all three users come in, and no fourth."""
    with contextlib.ExitStack() as stack:
        strangers(stack, scene.process.port, 200)
        for _ in range(SESSIONS):
            broker = stack.enter_context(scene.connect("root1"))
            assert broker.status()
        with pytest.raises(errors.TxBrokerError, match=f"there are {SESSIONS} sessions"):
            scene.connect("app", reconnect=False)


def test_the_administrator_comes_in_when_all_else_is_exhausted(scene):
    with contextlib.ExitStack() as stack:
        users = [stack.enter_context(scene.connect("root1")) for _ in range(SESSIONS)]
        strangers(stack, scene.process.port, MAX_STRANGERS)
        refused = []

        def is_full():
            peer = Peer(
                stack.enter_context(socket.create_connection(("127.0.0.1", scene.process.port), PATIENCE)),
                False,
            )
            peer.socket.settimeout(0.2)
            with contextlib.suppress(TimeoutError):
                refused.append(peer.read()[0])
            return refused

        eventually(is_full)
        assert refused[0].error == "LimitExceeded"
        assert f"{MAX_STRANGERS} connections have not logged in" in refused[0].message
        with scene.admin() as admin, scene.admin() as another:
            assert another.status()
            found = [session for session in admin.sessions() if session.principal == "root1"]
            assert len(found) == SESSIONS
            admin.close_session(found[0].session, why="to make room")
        assert users[0]


def test_the_administrators_socket_is_for_the_owner_alone(scene):
    path = scene.data / "admin.sock"
    assert path.stat().st_mode & 0o777 == 0o600
    with txbroker.connect(f"unix:{path}", timeout=10) as admin:
        assert admin.users()
