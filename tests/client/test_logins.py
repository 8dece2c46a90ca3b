"""Test that each client logs in in every way, at a real broker over TLS and without, and again when it must."""

import asyncio
import json
import os
import subprocess
import sys
import threading
import time

import jwt
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

import txbroker
from journal.records.access_entries import RIGHTS_ON, Effect, Resource, Right, Rule, TokenSubject, User
from tests.support.broker_process import told_broker
from tests.support.certificates import Folder, Signed
from tests.support.repository import PACKAGES
from tests.support.waiting import eventually
from txbroker import errors
from txbroker.client import asyncio as on_asyncio
from txbroker.client.login.verifier import verifier_of
from txbroker.wire.messages import Switch

pytestmark = pytest.mark.slow

ISSUER, AUDIENCE = "https://idp.example", "txbroker"


ALL = list(RIGHTS_ON[Resource.TOPIC])


class Scene:
    """A broker with one endpoint in the clear and one with TLS, which knows a token's issuer; and its users."""

    def __init__(self, process, folder, path, signer):
        self.process, self.folder, self.path, self.signer = process, folder, path, signer
        process.ready()
        tcp, tls = (
            text.rpartition(":")[2]
            for text in process.ready_line.split("listening=")[1].split(" ")[0].split(",")
        )
        self.tcp = f"tcp:127.0.0.1:{tcp}"
        self.tls = f"tls:127.0.0.1:{tls}:ca={folder.file('ca.pem')}"
        (path / "password").write_text("sesame\n")
        (path / "password").chmod(0o600)
        with self.admin() as admin:
            admin.add_user(User("pass", verifier_of("sesame", 4096)))
            admin.add_user(User("cert", None, ["DNS:billing.example"]))
            admin.add_user(User("token", None, [], [TokenSubject(ISSUER, "client-7")]))
            admin.add_user(User("boss", verifier_of("boss", 4096)))
            admin.allow(Rule("boss", Effect.ALLOW, Resource.BROKER, "", False, [Right.ADMINISTER]))
            for name in ("pass", "cert", "token"):
                admin.allow(Rule(name, Effect.ALLOW, Resource.TOPIC, f"{name}-", True, ALL))
            admin.switch_access(Switch.ENABLE)

    def admin(self):
        return txbroker.connect(f"unix:{self.path / 'data'}/admin.sock", timeout=20)

    def token(self, seconds=600.0, **claims):
        made = {"iss": ISSUER, "aud": AUDIENCE, "sub": "client-7", "exp": time.time() + seconds} | claims
        return jwt.encode(made, self.signer.key_pem(), algorithm="ES256")

    def principals(self):
        with self.admin() as admin:
            return {each.principal for each in admin.sessions()}


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    path = tmp_path_factory.mktemp("logins")
    folder, signer = Folder(path), Signed("idp")
    (path / "idp.pem").write_bytes(
        signer.key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )
    with told_broker(
        path / "data", "--listen", folder.endpoint("optional"),
        "--set", f"token_issuers={ISSUER} {AUDIENCE} {path / 'idp.pem'}",
    ) as process:  # fmt: skip
        yield Scene(process, folder, path, signer)


def ways(scene):
    """Each way in, as an address, the choices of ``connect``, and who it is."""
    with_certificate = f"{scene.tls}:cert={scene.folder.file('client.pem')}"
    password_file = str(scene.path / "password")
    return {
        "password": (scene.tcp, {"user": "pass", "password": "sesame"}, "pass"),
        "password from a function": (scene.tcp, {"user": "pass", "password": lambda: "sesame"}, "pass"),
        "password from a file, bound": (
            scene.tls, {"user": "pass", "password_file": password_file, "channel_binding": "require"}, "pass",
        ),
        "certificate": (with_certificate, {}, "cert"),
        "token": (scene.tls, {"token": scene.token}, "token"),
    }  # fmt: skip


NAMES = ["password", "password from a function", "password from a file, bound", "certificate", "token"]


def blocking(url, choices, topic):
    with txbroker.connect(url, timeout=20, **choices) as broker:
        broker.create_topic(topic)
        return broker.send(topic, b"1").offset


def in_asyncio(url, choices, topic):
    async def use():
        async with await on_asyncio.connect(url, timeout=20, **choices) as broker:
            await broker.create_topic(topic)
            return (await broker.send(topic, b"1")).offset

    return asyncio.run(use())


TWISTED = """
import json, sys
from twisted.internet.defer import ensureDeferred
from twisted.internet.task import react
from txbroker import errors
from txbroker.client import twisted as client

async def use(reactor):
    url, choices, topic = json.loads(sys.argv[1])
    try:
        broker = await client.connect(url, timeout=20, **choices)
    except errors.AuthenticationFailed as error:
        print("refused")
        return
    await broker.create_topic(topic)
    print((await broker.send(topic, b"1")).offset)
    await broker.close()

react(lambda reactor: ensureDeferred(use(reactor)))
"""


def in_twisted(url, choices, topic):
    plain = {name: value() if callable(value) else value for name, value in choices.items()}
    done = run_python(TWISTED, json.dumps([url, plain, topic]))
    if done == "refused":
        raise errors.AuthenticationFailed(done)
    return int(done)


def run_python(program, *arguments):
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={**os.environ, "PYTHONPATH": PACKAGES}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("face", [blocking, in_asyncio, in_twisted])
@pytest.mark.parametrize("way", NAMES)
def test_every_client_logs_in_in_every_way(scene, face, way):
    url, choices, who = ways(scene)[way]
    assert face(url, choices, f"{who}-{face.__name__}-{NAMES.index(way)}") == 0


@pytest.mark.parametrize("face", [blocking, in_asyncio, in_twisted])
def test_every_client_raises_at_once_if_it_is_not_let_in(scene, face):
    for choices in ({"user": "pass", "password": "wrong"}, {}, {"user": "nobody", "password": "sesame"}):
        began = time.monotonic()
        with pytest.raises(errors.AuthenticationFailed):
            face(scene.tcp, choices, "pass-x")
        assert time.monotonic() - began < 20, "as long as the client would wait for an answer"


def test_the_environment_says_how_to_log_in(scene, monkeypatch):
    monkeypatch.setenv("TXBROKER_USER", "pass")
    monkeypatch.setenv("TXBROKER_PASSWORD_FILE", str(scene.path / "password"))
    assert blocking(scene.tcp, {}, "pass-environment") == 0


def test_a_token_is_for_where_nobody_can_listen_and_a_wrong_one_lets_nobody_in(scene):
    wrong = scene.token(aud="others"), scene.token(-3600), scene.token(sub="client-8"), scene.token(exp=1e300)
    for token in (*wrong, "no-token"):
        with pytest.raises(errors.AuthenticationFailed):
            txbroker.connect(scene.tls, token=token, timeout=20)


def test_a_client_logs_in_anew_before_its_token_ends_and_keeps_its_session(scene):
    asked = []

    def provide():
        asked.append(time.monotonic())
        return scene.token(seconds=-58.0)  # with the leeway of a minute it has two seconds left

    with txbroker.connect(scene.tls, token=provide, timeout=20) as broker:
        broker.create_topic("token-renewed")
        session = broker.core.session
        with broker.transaction() as tx:
            tx.send("token-renewed", b"before")
            eventually(lambda: broker.ping() or len(asked) >= 3)
            tx.send("token-renewed", b"after")
        assert broker.core.session == session
    assert len(asked) >= 3


def test_a_client_that_nobody_uses_logs_in_anew_too(scene):
    """Seen to fail: nobody drove it, so its session ended with the token, and its transaction with that."""
    asked = []

    def provide():
        asked.append(time.monotonic())
        return scene.token(seconds=-58.0)

    with txbroker.connect(scene.tls, token=provide, timeout=20) as broker:
        broker.create_topic("token-idle")
        session = broker.core.session
        with broker.transaction() as tx:
            tx.send("token-idle", b"before")
            broker.flush()
            before = time.process_time()
            eventually(lambda: len(asked) >= 4)
            assert time.process_time() - before < 2.5, "it sleeps until it is time"
        assert broker.core.session == session
        assert [each.value for each in broker.read("token-idle", 0, 0)] == [b"before"]


def test_a_session_ends_with_its_token_if_the_client_has_no_other(scene):
    with txbroker.connect(scene.tls, token=scene.token(seconds=-58.0), timeout=3, reconnect=False) as broker:
        broker.create_topic("token-ends")
        eventually(lambda: "token" not in scene.principals())
        with pytest.raises(errors.TxBrokerError):
            broker.send("token-ends", b"1")


def test_a_function_that_hangs_holds_up_its_own_connection_alone(scene):
    wait = threading.Event()
    begun = time.monotonic()
    with pytest.raises(errors.TxBrokerError):
        txbroker.connect(scene.tcp, user="pass", password=lambda: wait.wait(60) and "", timeout=2)
    assert time.monotonic() - begun < 20
    wait.set()


def test_what_a_function_raises_is_told(scene):
    def fails():
        raise LookupError("the vault is sealed")

    with pytest.raises(errors.AuthenticationFailed, match="the vault is sealed") as caught:
        txbroker.connect(scene.tcp, user="pass", password=fails, timeout=20)
    assert isinstance(caught.value.__cause__, LookupError)


def test_a_client_whose_password_is_changed_while_it_runs_comes_back_with_the_new_one(scene):
    with scene.admin() as admin:
        admin.add_user(User("changing", verifier_of("old", 4096)))
        admin.allow(Rule("changing", Effect.ALLOW, Resource.TOPIC, "changing-", True, ALL))
        passwords = ["old"]
        with txbroker.connect(
            scene.tcp, user="changing", password=lambda: passwords[-1], timeout=20
        ) as broker:
            broker.create_topic("changing-t")
            admin.alter_user(User("changing", verifier_of("new", 4096)), ["scram"])
            [mine] = [each.session for each in admin.sessions() if each.principal == "changing"]
            admin.close_session(mine)
            threading.Timer(1.0, lambda: passwords.append("new")).start()
            assert broker.send("changing-t", b"1").offset == 0
