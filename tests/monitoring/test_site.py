"""Test the listener for health and metrics: what it answers when, and to whom."""

import contextlib
import http.client
import re
import socket
import ssl
import time

import pytest
from prometheus_client.parser import text_string_to_metric_families

import txbroker
from tests.support.broker_process import PATIENCE, told_broker
from tests.support.certificates import Folder
from tests.support.waiting import eventually
from txbroker.monitoring.broker_metrics import STATUS
from txbroker.monitoring.site import MAX_CONNECTIONS

pytestmark = pytest.mark.slow

HTTP = ("--set", "http=tcp:0:interface=127.0.0.1")


def port_of(broker):
    line = broker.wait_for("health and metrics at ")
    return int(re.search(r"at tcp:127\.0\.0\.1:(\d+)", line)[1])


def ask(port, path, method="GET", context=None, **headers):
    """The status and the text of a page; over TLS if there is a context for it."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    if context is not None:
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=PATIENCE, context=context)
    with contextlib.closing(connection):
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def metrics(port, **headers):
    """All samples, by name and labels."""
    status, text = ask(port, "/metrics", **headers)
    assert status == 200, text
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """A broker that goes on, and the port of its listener."""
    data = tmp_path_factory.mktemp("watched") / "data"
    with told_broker(data, *HTTP, "--set", "file_bytes=4MiB", "--set", "metrics_series=12") as broker:
        broker.ready()
        yield broker, port_of(broker)


def test_a_broker_that_serves_lives_and_is_ready(watched):
    _, port = watched
    assert ask(port, "/livez") == (200, "alive\n")
    assert ask(port, "/readyz") == (200, "ready\n")
    assert ask(port, "/readyz", "HEAD") == (200, "")
    assert ask(port, "/metrics", "HEAD") == (200, "")


def test_a_head_is_answered_without_a_body_and_without_a_word_in_the_log(watched):
    broker, port = watched
    before = len(broker.output)
    for path, status in (("/livez", b"200"), ("/readyz", b"200"), ("/metrics", b"200"), ("/other", b"404")):
        head, _, body = raw(port, b"HEAD %s HTTP/1.1\r\nHost: x\r\n\r\n" % path.encode()).partition(
            b"\r\n\r\n"
        )
        assert head.startswith(b"HTTP/1.1 " + status)
        assert b"content-type: text/plain" in head.lower()
        assert body == b""
    assert b"content-length: 6" in raw(port, b"HEAD /livez HTTP/1.1\r\nHost: x\r\n\r\n").lower()
    assert broker.output[before:] == ""


@pytest.mark.parametrize(
    "path", ["/", "/metric", "/metrics/", "/metrics/more", "/livez/x", "/../livez", "/%00", "//"]
)
def test_other_pages_are_not_there(watched, path):
    status, text = ask(watched[1], path)
    assert (status, text) == (404, "there are /livez, /readyz, /metrics, /api/overview and /api/queues\n")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "NONSENSE"])
def test_other_methods_are_refused(watched, method):
    assert ask(watched[1], "/metrics", method)[0] in (405, 501)


def raw(port, data):
    """What is answered to these bytes until the connection is closed."""
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as peer:
        peer.sendall(data)
        found = b""
        with contextlib.suppress(ConnectionError):
            while piece := peer.recv(4096):
                found += piece
        return found


@pytest.mark.parametrize(
    "announced", [b"Content-Length: 1", b"Content-Length: 99999999999999", b"Transfer-Encoding: chunked"]
)
def test_a_body_is_refused_before_it_comes(watched, announced):
    said = raw(watched[1], b"GET /metrics HTTP/1.1\r\nHost: x\r\n" + announced + b"\r\n\r\n")
    assert said.startswith(b"HTTP/1.1 413 ")
    assert b"txbroker_ready" not in said


@pytest.mark.parametrize(
    "head",
    [
        b"\0" * 20_000,
        b"GET /metrics HTTP/1.1\r\n" + b"a: b\r\n" * 2000,
        b"GET /" + b"x" * 20_000,
        b"GET /metrics HTTP/1.1\r\nHost: x\r\nx: " + b"y" * 20_000 + b"\r\n\r\n",
        b"HELO\r\n\r\n",
    ],
)
def test_what_is_no_request_of_a_decent_size_ends_the_connection(watched, head):
    said = raw(watched[1], head)
    assert b"200" not in said.partition(b"\r\n")[0]
    assert ask(watched[1], "/livez")[0] == 200


def test_a_connection_too_many_is_closed_and_a_silent_one_does_not_stay(watched):
    _, port = watched
    silent = [socket.create_connection(("127.0.0.1", port), PATIENCE) for _ in range(MAX_CONNECTIONS)]
    try:
        with pytest.raises((http.client.RemoteDisconnected, ConnectionError)):
            ask(port, "/livez")
        for each in silent:
            assert each.recv(1) == b""  # after a while; a closed one makes room
        assert ask(port, "/livez")[0] == 200
    finally:
        for each in silent:
            each.close()


def test_whoever_fills_one_endpoint_keeps_no_probe_from_another(tmp_path):
    settings = tmp_path / "settings.toml"
    settings.write_text('http = ["tcp:0:interface=127.0.0.1", "tcp:0:interface=127.0.0.1"]')
    with told_broker(tmp_path / "data", "--config", str(settings)) as broker:
        broker.ready()
        lines = [line for line in broker.output.splitlines() if "health and metrics at " in line]
        full, free = (int(re.search(r"at tcp:127\.0\.0\.1:(\d+)", line)[1]) for line in lines)
        with contextlib.ExitStack() as held:
            for _ in range(MAX_CONNECTIONS):
                peer = held.enter_context(socket.create_connection(("127.0.0.1", full), PATIENCE))
                peer.sendall(b"GET /livez HTTP/1.1\r\n")
            with pytest.raises((http.client.RemoteDisconnected, ConnectionError)):
                ask(full, "/livez")
            assert ask(free, "/livez") == (200, "alive\n")


def test_the_metrics_say_what_the_status_says_and_what_took_how_long(watched):
    broker, port = watched
    before = metrics(port)
    with txbroker.connect(f"tcp:127.0.0.1:{broker.port}") as client:
        client.create_topic("watched", partitions=3)
        for number in range(20):
            client.send("watched", b"%d" % number)
        with client.transaction() as tx:
            tx.send("watched", b"20")
        for _ in range(8):
            assert sum(len(client.read("watched", part, 0)) for part in range(3)) == 21
        status = client.status()
    after = metrics(port)
    assert before["txbroker_ready",] == after["txbroker_ready",] == 1
    assert after["txbroker_messages_received_total",] == status["messages_in"] == 20
    assert after["txbroker_journal_forced_lsn",] >= status["forced_lsn"]
    assert after["txbroker_uptime_seconds",] == pytest.approx(status["uptime"] / 1e6, abs=PATIENCE)
    labels = [str(part) for name in ("build", "format", "version") for part in (name, status[name])]
    assert after["txbroker_info", *zip(labels[::2], labels[1::2], strict=True)] == 1
    assert after["process_resident_memory_bytes",] > 10 << 20
    assert after["process_open_fds",] > 5

    def counted(name, *labels):
        return after[name, *labels] - before.get((name, *labels), 0)

    assert counted("txbroker_force_seconds_count") >= 21
    assert counted("txbroker_request_seconds_count", ("request", "send")) >= 1
    assert counted("txbroker_request_seconds_count", ("request", "commit")) >= 1
    assert 0 < counted("txbroker_request_seconds_sum", ("request", "send")) < PATIENCE
    assert counted("txbroker_delivery_age_seconds_count") >= 1
    assert after["txbroker_topic_messages_total", ("topic", "watched")] == 21
    assert after["txbroker_series_omitted",] == 0
    assert status.keys() == STATUS.keys(), "each figure is a metric, or is said to be none"


def test_topics_and_groups_beyond_the_bound_have_no_series_and_are_counted(watched):
    broker, port = watched
    with txbroker.connect(f"tcp:127.0.0.1:{broker.port}") as client:
        for number in range(10):
            client.create_topic(f"many-{number}", partitions=100)
            client.send(f"many-{number}", b"x")
            client.set_offsets(f"group-{number}", f"many-{number}", dict.fromkeys(range(100), 0))
            client.declare_queue(f"queue-{number}")
            client.publish("", f"queue-{number}", b"x")
        client.publish("", "queue-0", b"y")
        assert client.queue("queue-0").get(PATIENCE).value == b"x"
        found = metrics(port)
    topics = [labels for name, *labels in found if name == "txbroker_topic_messages_total"]
    lags = [labels for name, *labels in found if name == "txbroker_group_lag_messages"]
    queues = [labels for name, *labels in found if name == "txbroker_queue_ready_messages"]
    assert (len(topics), len(lags), len(queues)) == (4, 4, 4)
    assert found["txbroker_series_omitted",] >= 18
    assert found["txbroker_queue_ready_messages", ("queue", "queue-0")] == 1
    assert found["txbroker_queue_unacknowledged_messages", ("queue", "queue-0")] == 1
    assert found["txbroker_queues",] == 10
    assert found["txbroker_topic_messages_total", ("topic", "many-0")] == 1
    assert found["txbroker_group_lag_messages", ("group", "group-0"), ("topic", "many-0")] == 1


def test_of_many_requests_in_one_read_the_first_is_answered_and_the_connection_ends(watched):
    """Twisted would answer all of them in one turn, for a second and more."""
    for page in (b"/livez", b"/metrics"):
        said = raw(watched[1], b"GET %s HTTP/1.1\r\nHost: x\r\n\r\n" % page * 2700)
        assert said.count(b"HTTP/1.1 200 OK") == 1
        assert b"connection: close" in said.lower()


def test_a_page_that_is_not_read_ends_with_its_connection(watched, tmp_path_factory):
    data = tmp_path_factory.mktemp("lazy") / "data"
    with told_broker(data, *HTTP, "--set", "file_bytes=4MiB", "--set", "metrics_series=100000") as broker:
        broker.ready()
        with txbroker.connect(f"tcp:127.0.0.1:{broker.port}") as client:
            for number in range(300):
                client.create_topic(f"{number:03}-{'x' * 190}")
        port = port_of(broker)
        whole = ask(port, "/metrics")[1]
        assert len(whole) > 100_000
        with socket.create_connection(("127.0.0.1", port), PATIENCE) as lazy:
            lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
            lazy.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            assert ask(port, "/metrics")[1].count("\n") >= whole.count("\n")


def test_a_peer_that_reads_nothing_holds_up_nobody(watched):
    _, port = watched
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as lazy:
        lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        lazy.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 1000)
        began = time.monotonic()
        assert ask(port, "/livez")[0] == 200
        assert time.monotonic() - began < PATIENCE / 2


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """The port of a listener that wants a token."""
    folder = tmp_path_factory.mktemp("token")
    (folder / "token").write_text("s3cret\n")
    (folder / "token").chmod(0o600)
    words = (*HTTP, "--set", f"http_token_file={folder / 'token'}", "--set", "file_bytes=4MiB")
    with told_broker(folder / "data", *words) as broker:
        broker.ready()
        assert "s3cret" not in broker.output
        yield port_of(broker)


class TestTokens:
    """The bearer token of those who may read metrics."""

    @pytest.mark.parametrize("shown", ["Bearer s3cret", "bearer s3cret", "BEARER   s3cret"])
    def test_who_shows_it_reads_them(self, guarded, shown):
        assert metrics(guarded, Authorization=shown)["txbroker_ready",] == 1

    @pytest.mark.parametrize(
        "shown", ["", "Bearer", "Bearer s3cre", "Bearer s3crets", "Basic s3cret", "s3cret", "Bearer s3cret x"]
    )
    def test_who_shows_another_or_none_does_not(self, guarded, shown):
        status, text = ask(guarded, "/metrics", Authorization=shown)
        assert status == 401
        assert "txbroker_" not in text
        assert "http_token_file" in text

    def test_probes_need_none(self, guarded):
        assert ask(guarded, "/livez")[0] == ask(guarded, "/readyz")[0] == 200


@pytest.fixture(scope="module")
def proven(tmp_path_factory):
    """The port of a listener that anybody can reach who has a certificate, and its files."""
    folder = Folder(tmp_path_factory.mktemp("proven"))
    endpoint = folder.endpoint("required", interface="::")
    with told_broker(folder.path / "data", "--set", f"http={endpoint}", "--set", "file_bytes=4MiB") as broker:
        broker.ready()
        line = broker.wait_for("health and metrics at ")
        yield int(re.search(r"at tls:\\:\\::(\d+)", line)[1]), folder


class TestClientCertificates:
    """With certificates of clients required no token is needed to be seen by others."""

    @pytest.mark.parametrize("path", ["/livez", "/readyz", "/metrics"])
    def test_who_has_one_sees_all_pages(self, proven, path):
        port, folder = proven
        context = ssl.create_default_context(cafile=folder.file("ca.pem"))
        context.load_cert_chain(folder.file("client.pem"))
        context.set_alpn_protocols(["h2", "http/1.1"])  # as Prometheus and curl do
        assert ask(port, path, context=context)[0] == 200

    @pytest.mark.parametrize("shows", [None, "stranger.pem"])
    def test_who_has_another_or_none_sees_nothing(self, proven, shows):
        port, folder = proven
        context = ssl.create_default_context(cafile=folder.file("ca.pem"))
        if shows:
            context.load_cert_chain(folder.file(shows))
        with pytest.raises((ssl.SSLError, ConnectionError)):
            ask(port, "/livez", context=context)

    def test_a_connection_too_many_is_closed_there_too(self, proven):
        port, folder = proven
        context = ssl.create_default_context(cafile=folder.file("ca.pem"))
        context.load_cert_chain(folder.file("client.pem"))
        silent = [socket.create_connection(("127.0.0.1", port), PATIENCE) for _ in range(MAX_CONNECTIONS)]
        with pytest.raises((ssl.SSLError, ConnectionError)):
            ask(port, "/livez", context=context)
        for each in silent:
            each.close()
        eventually(lambda: is_answered(port, context))


def is_answered(port, context):
    try:
        return ask(port, "/livez", context=context)[0] == 200
    except (ssl.SSLError, ConnectionError):
        return False


def test_it_is_there_before_recovery_and_until_the_process_ends(tmp_path):
    data = tmp_path / "data"
    with told_broker(data, *HTTP, "--set", "file_bytes=4MiB") as broker:
        broker.ready()
        port = port_of(broker)
        with txbroker.connect(f"tcp:127.0.0.1:{broker.port}") as client:
            client.create_topic("t")
            client.send("t", b"1")
        broker.stop()
        assert broker.wait() == 0
        with pytest.raises(ConnectionRefusedError):
            ask(port, "/livez")
        output = broker.output
    assert (
        output.index("health and metrics at") < output.index("recovering ") < output.index("txbroker ready")
    )


def test_an_address_that_is_taken_ends_the_process_with_the_reason(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        endpoint = f"tcp:{taken.getsockname()[1]}:interface=127.0.0.1"
        with told_broker(tmp_path / "data", "--set", f"http={endpoint}") as broker:
            assert broker.wait() == 1
            assert f"{endpoint} cannot be listened to: CannotListenError" in broker.output
            assert "recovering" not in broker.output


def test_without_the_setting_there_is_no_listener(tmp_path):
    with told_broker(tmp_path / "data", "--set", "file_bytes=4MiB") as broker:
        broker.ready()
        eventually(lambda: "txbroker ready" in broker.output)
        assert "health and metrics" not in broker.output
