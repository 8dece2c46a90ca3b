"""Test which mechanism a client chooses, and that both sides agree in each."""

import msgspec
import pytest

from journal.parties import ADMINISTRATOR
from tests.client.login.dialogue import dialogue
from tests.login.login_room import HASH, LOOPBACK, OPEN, TLS, LoginRoom, failure, success
from tests.login.test_external import UNIX, showing
from tests.login.token_issuers import AUDIENCE, ISSUER, NOW, pem, token
from txbroker.client.login.choice import ChannelBinding, choose
from txbroker.client.login.credentials import Credentials
from txbroker.errors import AuthenticationFailed, Misuse
from txbroker.login.tokens import issuer_of

PENCIL = Credentials(user="alice", password="pencil")
PLUS, SCRAM, PLAIN = "SCRAM-SHA-256-PLUS", "SCRAM-SHA-256", "PLAIN"
DISABLE, PREFER, REQUIRE = ChannelBinding


def room():
    made = LoginRoom()
    made.logins.trust([issuer_of(ISSUER, AUDIENCE, pem("RSA"), "keys")])
    made.clock.set_wall(NOW * 1_000_000)
    return made


@pytest.mark.parametrize(
    ("offered", "secure", "certificate_hash", "channel_binding", "mechanism"),
    [
        ([PLAIN, SCRAM, PLUS], True, HASH, PREFER, PLUS),
        ([PLAIN, SCRAM, PLUS], True, HASH, REQUIRE, PLUS),
        ([PLAIN, SCRAM, PLUS], True, HASH, DISABLE, SCRAM),
        ([PLAIN, SCRAM, PLUS], True, None, PREFER, SCRAM),
        ([PLAIN, SCRAM], True, HASH, PREFER, SCRAM),
        ([PLAIN, SCRAM], False, None, PREFER, SCRAM),
        ([PLAIN], True, HASH, PREFER, PLAIN),
        (["EXTERNAL", "OAUTHBEARER", PLAIN], True, None, DISABLE, PLAIN),
    ],
)
def test_a_password_is_proven_by_the_strongest_mechanism(
    offered, secure, certificate_hash, channel_binding, mechanism
):
    for names in (offered, offered[::-1]):
        chosen = choose(
            names, PENCIL, secure=secure, certificate_hash=certificate_hash, channel_binding=channel_binding
        )
        assert chosen.mechanism == mechanism


@pytest.mark.parametrize(
    ("offered", "secure", "certificate_hash", "channel_binding", "reason"),
    [
        ([PLAIN], False, None, PREFER, "sent only where nobody can listen"),
        ([PLAIN, SCRAM], True, HASH, REQUIRE, "the broker offers PLAIN, SCRAM-SHA-256"),
        ([PLUS, SCRAM], True, None, REQUIRE, "there is no certificate to bind to"),
        ([PLUS], True, None, PREFER, "this client has a password"),
        ([PLUS], True, HASH, DISABLE, "this client has a password"),
        (["EXTERNAL", "ANONYMOUS", "SCRAM-SHA-1"], True, HASH, PREFER, "this client has a password"),
        ([], True, HASH, PREFER, "the broker accepts logins by nothing"),
        (["x" * 9999, "\x1b[2J\n"] * 99, True, HASH, PREFER, "this client has a password"),
    ],
)
def test_a_password_is_not_proven_in_a_weaker_way_than_was_asked_for(
    offered, secure, certificate_hash, channel_binding, reason
):
    with pytest.raises(AuthenticationFailed, match=reason) as caught:
        choose(
            offered, PENCIL, secure=secure, certificate_hash=certificate_hash, channel_binding=channel_binding
        )
    assert "Nothing was sent" in str(caught.value)
    assert len(str(caught.value)) < 600
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("facts", "credentials", "mechanism"),
    [
        (TLS, PENCIL, PLUS),
        (OPEN, PENCIL, SCRAM),
        (LOOPBACK, PENCIL, SCRAM),
        (TLS, Credentials(token=token), "OAUTHBEARER"),
        (TLS, Credentials(user="alice", token=token()), "OAUTHBEARER"),
        (showing("DNS:alice.example"), Credentials(use_certificate=True), "EXTERNAL"),
        (showing("DNS:alice.example"), Credentials(user="alice", use_certificate=True), "EXTERNAL"),
    ],
)
def test_client_and_broker_agree(facts, credentials, mechanism):
    made = room()
    client = choose(
        made.logins.mechanisms(facts),
        credentials,
        secure=facts.secure,
        certificate_hash=facts.certificate_hash,
    )
    assert client.mechanism == mechanism
    assert success(dialogue(client, made, facts)).principal == "alice"


def test_they_agree_by_plain_and_without_a_binding_too():
    made = room()
    assert success(dialogue(choose([PLAIN], PENCIL, secure=True), made)).principal == "alice"
    unbound = choose([SCRAM], PENCIL, secure=True, certificate_hash=HASH, channel_binding=DISABLE)
    assert success(dialogue(unbound, made)).principal == "alice"


def test_the_administrator_is_known_by_its_socket():
    made = room()
    client = choose(made.logins.mechanisms(UNIX), Credentials(use_certificate=True), secure=True)
    assert success(dialogue(client, made, UNIX)).principal == ADMINISTRATOR


def test_somebody_in_between_is_found_by_the_certificate():
    client = choose([PLUS, SCRAM], PENCIL, secure=True, certificate_hash=b"e" * 32)
    assert "bindings don't match" in failure(dialogue(client, room()))


def test_somebody_who_takes_the_stronger_mechanism_out_is_found_by_the_broker():
    client = choose([SCRAM, PLAIN], PENCIL, secure=True, certificate_hash=b"e" * 32)
    assert client.mechanism == SCRAM
    assert "but in fact it does" in failure(dialogue(client, room()))


def test_a_client_without_credentials_is_anonymous_where_it_may():
    made = room()
    free = msgspec.structs.replace(OPEN, login_required=False)
    client = choose(made.logins.mechanisms(free), None, secure=False)
    assert success(dialogue(client, made, free)).principal == "anonymous"
    with pytest.raises(AuthenticationFailed, match="this client has no credentials"):
        choose(made.logins.mechanisms(TLS), None, secure=True)


@pytest.mark.parametrize(
    ("credentials", "offered"),
    [
        (Credentials(token="t"), [PLUS, SCRAM, PLAIN, "ANONYMOUS"]),
        (Credentials(use_certificate=True), [PLUS, SCRAM, PLAIN]),
        (Credentials(user="alice", use_certificate=True), [PLUS, SCRAM, PLAIN, "ANONYMOUS"]),
    ],
)
def test_what_the_broker_does_not_take_is_not_sent(credentials, offered):
    with pytest.raises(AuthenticationFailed, match="Nothing was sent"):
        choose(offered, credentials, secure=True)


def test_a_certificate_that_was_for_tls_alone_lets_its_client_in_where_nobody_has_to_log_in():
    made = choose([PLUS, SCRAM, PLAIN, "ANONYMOUS"], Credentials(use_certificate=True), secure=True)
    assert made.mechanism == "ANONYMOUS"


def test_a_token_is_not_sent_where_others_can_listen():
    with pytest.raises(Misuse, match="Use TLS"):
        choose(["OAUTHBEARER"], Credentials(token="t"), secure=False)


def test_a_token_that_is_refused_ends_in_the_brokers_failure():
    made = room()
    client = choose(["OAUTHBEARER"], Credentials(token=token(exp=NOW - 100)), secure=True)
    assert "expired" in failure(dialogue(client, made))
