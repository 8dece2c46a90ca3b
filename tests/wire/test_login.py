"""Test that the messages of a login show nothing secret when they are printed or logged."""

import pytest

from txbroker.wire.codec import encode, request_decoder
from txbroker.wire.messages import Challenge, Login, Welcome
from txbroker.wire.requests import FormerSession
from txbroker.wire.secret import Secret

SAID = b"\0alice\0sesame"
FORMER = FormerSession(7, b"n", Secret(b"geheim"))


@pytest.mark.parametrize(
    "message",
    [
        Login(1, "PLAIN", SAID, FORMER),
        Challenge(1, SAID),
        Welcome(1, 70, 100, 100, secret=Secret(b"geheim"), principal="alice", data=SAID),
    ],
    ids=lambda message: type(message).__name__,
)
def test_no_secret_of_a_login_is_shown(message):
    for shown in (repr(message), str(message), repr([message]), f"{message}"):
        assert "sesame" not in shown
        assert "geheim" not in shown
        assert f"{type(message).__name__}(correlation=1, " in shown
        assert "data=<13 bytes hidden>" in shown


def test_what_is_not_secret_is_still_shown():
    shown = repr(Login(3, "SCRAM-SHA-256", b"", FORMER))
    assert shown == (
        "Login(correlation=3, mechanism='SCRAM-SHA-256', data=<0 bytes hidden>, "
        "after=FormerSession(session=7, start=b'n', secret=Secret(hidden)))"
    )


def test_what_goes_over_the_wire_is_whole():
    [(head, _)] = request_decoder(1 << 20).feed(encode(Login(1, "PLAIN", SAID, FORMER)))
    assert head == Login(1, "PLAIN", SAID, FORMER)
    assert head.data == SAID
