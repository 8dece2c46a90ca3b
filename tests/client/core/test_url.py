import asyncio
import re
import traceback

import pytest

from txbroker.client import asyncio as asyncio_client
from txbroker.client import blocking
from txbroker.client import twisted as twisted_client
from txbroker.client.core.url import Address, parse
from txbroker.errors import Misuse


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("tcp:127.0.0.1:7654", Address("tcp", "127.0.0.1", 7654)),
        ("tcp:[::1]:7654", Address("tcp", "::1", 7654)),
        ("unix:/run/a:b", Address("unix", path="/run/a:b")),
        ("tls:broker.example:7655", Address("tls", "broker.example", 7655)),
        ("tls:broker.example:7655:ca=my:ca.pem", Address("tls", "broker.example", 7655, ca="my:ca.pem")),
        ("tls:[::1]:7655:cert=both.pem", Address("tls", "::1", 7655, cert="both.pem")),
        ("tls:a:1:key=k:k:cert=c:ca=i", Address("tls", "a", 1, ca="i", cert="c", key="k:k")),
        ("tls:a:1:ca=i:cert=key=x", Address("tls", "a", 1, ca="i", cert="key=x")),
    ],
)
def test_an_address_is_read(url, address):
    assert parse(url) == address
    assert parse(address.place)[:4] == address[:4]


@pytest.mark.parametrize(
    "url",
    ["", "tcp:", "tcp:host", "tcp:host:", "tcp:host:0", "tcp:host:65536", "tcp:host:x", "tcp::1", "unix:",
     "http://host:1", "tcp:host:1:ca=a", "tls:host:1:ca=", "tls:host:1:key=a", "tls:host:1:ca=a:key=b",
     "tls:host:1:cert=a:ca=b:cert=c",
     "tls:host:1:cert=", "tls:host:1:crt=a", "tls:host:1:cert=a:key=", "tcp:host:1:cert=a", "tcp:host:¹", "amqp://localhost",
     "kafka://host:9092", "tcp:a/b:1", "tcp:a b:1", "tcp:[::1]7654", "localhost:x", "a,b:7654", b"tcp:host:1", None,
     ["a", "b"], ("tcp:a:1", "tcp:b:1"), 7654],
)  # fmt: skip
def test_what_is_no_address_is_refused_with_the_forms_that_are(url):
    with pytest.raises(Misuse, match=r"tcp:HOST:PORT"):
        parse(url)


@pytest.mark.parametrize(
    ("url", "meant"),
    [
        ("tcp://127.0.0.1:7654", "tcp:127.0.0.1:7654"),
        ("tcp://[::1]:7654/", "tcp:[::1]:7654"),
        ("tls://broker.example:7655", "tls:broker.example:7655"),
        ("tcp://broker.example", "tcp:broker.example:7654"),
        ("txbroker://broker.example:1", "tcp:broker.example:1"),
        ("unix:///run/a.sock", "unix:/run/a.sock"),
        ("localhost:7654", "tcp:localhost:7654"),
        ("localhost", "tcp:localhost:7654"),
        ("10.0.0.1:7654", "tcp:10.0.0.1:7654"),
    ],
)
def test_what_is_written_otherwise_is_refused_with_what_to_write(url, meant):
    """``tcp://127.0.0.1:7654`` was tried until the time was up: the host was //127.0.0.1."""
    with pytest.raises(Misuse, match=f"write '{re.escape(meant)}'"):
        parse(url)
    assert parse(meant)


@pytest.mark.parametrize("url", ["tcp://127.0.0.1:1", "localhost:1", ["a", "b"], "amqp://localhost"])
def test_every_api_refuses_at_once(url):
    with pytest.raises(Misuse, match="is not a broker's address"):
        blocking.connect(url)
    with pytest.raises(Misuse, match="is not a broker's address"):
        asyncio.run(asyncio_client.connect(url))
    failures = []
    twisted_client.connect(url, reactor=object()).addErrback(failures.append)
    with pytest.raises(Misuse, match="is not a broker's address"):
        failures[0].raiseException()


SECRET = "hunter2"


@pytest.mark.parametrize(
    "url",
    [
        f"tcp:billing:{SECRET}@host:7654",
        f"tcp:{SECRET}@host:7654",
        f"tcp://billing:{SECRET}@host:7654",
        f"tls:billing:{SECRET}@host:7654:ca=/ca.pem",
        f"tls://billing:{SECRET}@host",
        f"txbroker://billing:{SECRET}@host:1/",
        f"unix://billing:{SECRET}@run/a.sock",
        f"amqp://billing:{SECRET}@host",
        f"billing:{SECRET}@host:7654",
        f"billing:{SECRET}@host",
        f"tcp:host:7654?password={SECRET}",
        f"tcp:host:7654:password={SECRET}",
        f"tls:host:7655:Token={SECRET}",
        f"tls:billing:ca={SECRET}@host:7655",
        [f"tcp:billing:{SECRET}@host:7654"],
        f"tcp:billing:{SECRET}@host:7654".encode(),
    ],
)
def test_an_address_with_a_password_is_refused_and_not_repeated(url):
    with pytest.raises(Misuse, match="is not shown, for it may have a password in it") as caught:
        parse(url)
    assert SECRET not in "".join(traceback.format_exception(caught.value, chain=True, limit=0))
    assert "password_file=" in str(caught.value)


@pytest.mark.parametrize("url", ["unix:/run/a@b.sock", "tls:host:1:ca=/run/a@b/ca.pem:cert=/password=/c"])
def test_names_of_files_may_look_like_it(url):
    assert parse(url)
