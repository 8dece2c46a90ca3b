"""Test endpoints: what is one, and whom it lets in."""

import os
import socket

import pytest
from twisted.internet import reactor
from twisted.internet.endpoints import AdoptedStreamServerEndpoint

from benchmarks.fair.certificate import write_certificate
from txbroker.errors import InvalidSetting
from txbroker.server.endpoints import listening
from txbroker.server.endpoints.listening import exposure, open_ones

PRIVATE = [
    "tcp:7654:interface=127.0.0.1",
    "tcp:7654:127.0.0.1",
    "tcp:0:interface=127.8.9.10",
    r"tcp6:7654:interface=\:\:1",
    r"tcp6:7654:interface=\:\:ffff\:127.0.0.1",
    "tcp:interface=127.0.0.1:port=7654",
    "unix:/run/txbroker.sock:mode=600",
    "unix:/run/txbroker.sock:mode=660",
    "unix:/run/txbroker.sock:mode=0770:lockfile=0",
]

OPEN = {
    "tcp:7654": "every interface",
    "tcp:7654:interface=": "every interface",
    "tcp:7654:interface=0.0.0.0": "every interface",
    "tcp6:7654": "every interface",
    r"tcp6:7654:interface=\:\:": "every interface",
    r"tcp6:7654:interface=\:\:ffff\:192.0.2.7": "whoever can reach ::ffff:192.0.2.7",
    "tcp:7654:interface=192.0.2.7": "whoever can reach 192.0.2.7",
    "tcp:7654:interface=localhost": "say interface=127.0.0.1",
    "tcp:7654:interface=127.0.0.1.example.com": "whoever can reach 127.0.0.1.example.com",
    "unix:/run/txbroker.sock": "its mode is 666; say mode=600",
    "unix:/run/txbroker.sock:mode=602": "its mode is 602",
    "unix:/run/txbroker.sock:mode=661": "its mode is 661",
    "stdio:": "this kind of endpoint is not known",
}


@pytest.mark.parametrize("description", PRIVATE)
def test_what_only_meant_users_of_this_machine_can_reach_is_open_to_nobody_else(description):
    assert open_ones(reactor, [description]) == {}


@pytest.mark.parametrize("description", OPEN)
def test_of_what_others_can_reach_it_is_said_who(description):
    [(named, said)] = open_ones(reactor, [PRIVATE[0], description]).items()
    assert named == description
    assert said.startswith(f"{description} can be reached by ")
    assert OPEN[description] in said


def test_over_tls_it_matters_as_much(tmp_path):
    """A certificate of the broker says nothing of who connects."""
    key = write_certificate(tmp_path / "both.pem")
    assert open_ones(reactor, [f"tls:0:interface=127.0.0.1:cert={key}"]) == {}
    [said] = open_ones(reactor, [f"tls:0:cert={key}"]).values()
    assert "every interface" in said


class TestSocketsOfOthers:
    """Sockets that another process, as systemd, has opened."""

    def exposure(self, listens):
        return exposure(AdoptedStreamServerEndpoint(reactor, listens.fileno(), listens.family))

    def test_the_socket_itself_is_looked_at(self, tmp_path):
        with socket.create_server(("127.0.0.1", 0)) as listens:
            assert self.exposure(listens) == ""
            assert listens.getsockname()[1], "it is open yet"
        with socket.create_server(("0.0.0.0", 0)) as listens:
            assert "every interface" in self.exposure(listens)
        with socket.socket(socket.AF_UNIX) as listens:
            listens.bind(os.fspath(tmp_path / "s"))
            os.chmod(tmp_path / "s", 0o660)
            assert self.exposure(listens) == ""
            os.chmod(tmp_path / "s", 0o666)
            assert "every user of this machine" in self.exposure(listens)
            os.remove(tmp_path / "s")
            assert "cannot be looked at" in self.exposure(listens)
        with socket.socket(socket.AF_UNIX) as listens:
            listens.bind("\0txbroker-test")
            assert "cannot be looked at" in self.exposure(listens)


@pytest.mark.parametrize(
    ("description", "said"),
    [
        ("carrier-pigeon:7", "carrier-pigeon:7: not an endpoint"),
        ("tcp:port", "tcp:port: not an endpoint"),
        ("7655", "One is tcp:7655:interface=127.0.0.1"),
        ("tcp:80000", "80000 is not a port"),
        (r"tcp:port=\70000:interface=127.0.0.1", "is not a port"),
        ("unix:\0abstract:mode=600:lockfile=0", "it has a NUL"),
    ],
)
def test_what_is_no_endpoint_is_refused_whoever_may_come(description, said):
    with pytest.raises(InvalidSetting) as refused:
        open_ones(reactor, [description])
    assert said in str(refused.value)


def backlog(description):
    return listening.endpoint_of(reactor, description)._backlog


def test_endpoints_get_a_backlog_unless_they_have_one_or_know_none():
    assert backlog("tcp:7654:interface=127.0.0.1") == 1024
    assert backlog("unix:/s") == 1024
    assert backlog("tcp:7654:backlog=5") == 5
    assert listening.endpoint_of(reactor, "stdio:") is not None
