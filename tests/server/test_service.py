"""Test a real process: what was acknowledged is there after any end, and a start that would lose it is refused."""

import re
import resource
import signal
import socket
import ssl
import time

import pytest

from benchmarks.fair.certificate import write_certificate
from journal.formats.version import FORMAT, PROGRAM
from tests.support.broker_process import PATIENCE, told_broker
from tests.support.peer import Peer, frames
from txbroker.wire.messages import AskStatus, Done, GoingAway, Ping, Send, Sent

pytestmark = pytest.mark.slow


@pytest.fixture
def data(tmp_path):
    return tmp_path / "data"


def test_a_second_broker_is_refused_by_the_directory_and_what_to_do(data):
    with told_broker(data) as broker:
        broker.ready()
        with told_broker(data) as second:
            assert second.wait() == 1
            second.wait_for(
                rf"DirectoryLocked: {data} is locked by process {broker.pid}: .*Stop that process"
            )
        broker.stop()


def test_a_broker_whose_lock_is_removed_ends_with_the_reason_and_loses_nothing(data):
    with told_broker(data) as broker:
        sent = send_many(broker.ready(), 10)
        (data / "lock").unlink()
        assert broker.wait() == 1
        broker.wait_for(rf"critical.*LockLost: {data}/lock, by which .* has been removed: .*start again")
        assert "Traceback" not in broker.output
    with told_broker(data) as broker, Peer(broker.ready()) as peer:
        assert peer.values(peer.topic()) == sent


def newest_journal_file(data):
    return max(path for path in (data / "journal").iterdir() if path.suffix == ".journal")


def send_many(port, count):
    with Peer(port) as peer:
        partition = peer.topic()
        for number in range(count):
            assert peer.ask(Send, partition, data=frames(b"message %d" % number)) == Sent(
                peer.correlation, number
            )
    return [b"message %d" % number for number in range(count)]


def test_one_line_says_when_and_where_it_is_ready_and_what_was_recovered(data):
    with told_broker(data) as broker:
        port = broker.ready()
        with Peer(port) as peer:
            assert peer.ask(Ping) == Done(peer.correlation)
        assert [line for line in broker.output.splitlines() if "txbroker ready" in line] == [
            broker.ready_line
        ]
        for name in (
            f"version={PROGRAM}",
            f"format={FORMAT}",
            "start=1",
            "recovery=0.",
            "replayed=0",
            "rolled_back=0",
            "in_doubt=0",
        ):
            assert name in broker.ready_line


def test_sigterm_ends_well_and_leaves_a_clean_start_behind(data):
    with told_broker(data) as broker:
        sent = send_many(broker.ready(), 50)
        broker.stop()
        assert "txbroker stopped" in broker.output
        assert "Traceback" not in broker.output
    with told_broker(data) as broker:
        port = broker.ready()
        assert broker.field("start") == 2
        assert broker.field("replayed") <= 2, "the checkpoint has it all"
        with Peer(port) as peer:
            assert peer.values(peer.topic()) == sent


def test_sigterm_answers_what_is_in_flight_and_then_closes(data):
    with told_broker(data) as broker:
        with Peer(broker.ready()) as peer:
            partition = peer.topic()
            for _ in range(2000):
                peer.say(Send, partition, data=frames(b"x"))
            assert isinstance(peer.read()[0], Sent)
            broker.terminate()
            answered, told = 1, []
            while (found := peer.read()) is not None:
                if isinstance(found[0], GoingAway):
                    told.append(found[0])
                    continue
                assert isinstance(found[0], Sent)
                answered += 1
        assert [each.reason for each in told] == ["it is stopping"]
        assert broker.wait() == 0
    with told_broker(data) as broker, Peer(broker.ready()) as peer:
        assert len(peer.values(peer.topic())) == answered, "what was accepted was answered, and nothing else"


def test_after_sigkill_everything_acknowledged_is_there(data):
    for start in range(3):
        with told_broker(data) as broker:
            with Peer(broker.ready()) as peer:
                partition = peer.topic()
                assert peer.values(partition) == [b"%d" % number for number in range(start * 10)]
                for number in range(start * 10, start * 10 + 10):
                    assert isinstance(peer.ask(Send, partition, data=frames(b"%d" % number)), Sent)
            broker.kill()
            assert broker.exit_code == -signal.SIGKILL


def test_an_idle_connection_does_not_hold_up_stopping(data):
    with told_broker(data) as broker, Peer(broker.ready()), Peer(broker.ready(), hello=False):
        begun = time.monotonic()
        broker.stop()
        assert time.monotonic() - begun < PATIENCE / 2


def test_a_second_process_on_the_same_directory_is_refused_by_name_and_harms_nothing(data):
    with told_broker(data) as first:
        port = first.ready()
        with told_broker(data) as second:
            assert second.wait() == 1
            assert f"locked by process {first.pid}" in second.output
            assert "txbroker ready" not in second.output
        with Peer(port) as peer:
            assert peer.ask(Ping) == Done(peer.correlation)


def test_damaged_data_is_refused_with_the_place_and_what_to_do_and_nothing_is_listened_to(data):
    with told_broker(data) as broker:
        send_many(broker.ready(), 5)
        broker.kill()
    file = newest_journal_file(data)
    whole = file.read_bytes()
    damaged = whole.replace(b"message 1", b"massage 1")
    assert damaged != whole
    file.write_bytes(damaged)
    with told_broker(data) as broker:
        assert broker.wait() == 1
        assert "CorruptJournal" in broker.output
        assert file.name in broker.output
        assert "from a copy" in broker.output
        assert "listening" not in broker.output
        assert " starting on " not in broker.output
    assert file.read_bytes() == damaged, "the evidence is as it was"


def test_an_address_that_is_taken_ends_the_process_with_the_reason(data):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        endpoint = f"tcp:{taken.getsockname()[1]}:interface=127.0.0.1"
        with told_broker(data, "--listen", endpoint) as broker:
            assert broker.wait() == 1
            assert f"{endpoint} cannot be listened to: CannotListenError: " in broker.output
            assert "Traceback" not in broker.output
            assert "txbroker ready" not in broker.output
    with told_broker(data) as broker:
        broker.ready()


def test_a_disk_too_small_for_the_settings_is_refused_with_the_numbers_while_there_are_no_data(data):
    with told_broker(data, "--set", "low_water_bytes=1048576GiB") as broker:
        assert broker.wait() == 1
        assert re.search(r"DiskFull: the disk is too small .* [\d,.]+ MiB are free", broker.output)
        assert "low_water_bytes=1,073,741,824.0 MiB" in broker.output
        assert "txbroker ready" not in broker.output
    assert [path.name for path in data.rglob("*") if path.is_file()] == ["lock"]


def test_on_a_disk_that_is_too_small_by_now_it_says_what_it_refuses_and_ends_what_was_begun(data):
    with told_broker(data) as broker:
        send_many(broker.ready(), 5)
        broker.stop()
    with told_broker(data, "--set", "low_water_bytes=1048576GiB") as broker:
        port = broker.ready()
        said = broker.wait_for("NEW WORK IS REFUSED")
        assert "low_water_bytes=1,073,741,824.0 MiB" in said
        with Peer(port) as peer:
            status = peer.ask(AskStatus).values
            assert status["disk_full"] == 1
            assert status["disk_bytes_free"] < status["disk_bytes_needed"] == (1 << 50) + (64 << 20)
        broker.stop()


def test_a_foreign_directory_is_refused_and_not_a_file_is_made_in_it(data):
    data.mkdir()
    (data / "hosts").touch()
    with told_broker(data) as broker:
        assert broker.wait() == 1
        assert f"{data} cannot be opened: ForeignDirectory: the directory holds 'hosts'" in broker.output
    assert [file.name for file in data.iterdir()] == ["hosts"]


@pytest.mark.parametrize(
    ("place", "said"),
    [("file", "is not a directory"), ("file/data", "cannot be made"), ("no/data", "cannot be made")],
)
def test_what_cannot_be_a_directory_is_not_taken_for_a_failing_disk(tmp_path, place, said):
    (tmp_path / "file").touch()
    with told_broker(tmp_path / place) as broker:
        assert broker.wait() == 1
        assert f"{tmp_path / place} {said}; nothing was written" in broker.output
        assert "failing" not in broker.output
        assert "acknowledged" not in broker.output
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_a_socket_in_a_missing_folder_is_refused_with_the_folder(data, tmp_path):
    with told_broker(data, "--listen", f"unix:{tmp_path}/no/s:mode=600") as broker:
        assert broker.wait() == 1
        assert f"(the folder {tmp_path}/no is missing; make it" in broker.output
        assert "Traceback" not in broker.output


def test_a_failed_write_ends_the_process_and_loses_nothing_acknowledged(data):
    with told_broker(data) as broker:
        port = broker.ready()
        sent = send_many(port, 5)
        with Peer(port) as peer:
            partition = peer.topic()
            # From now on no file is written beyond its first two pages: the log has less, groups lie behind.
            resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (8192, 8192))
            assert peer.ask(Send, partition, data=frames(b"lost")) is None, (
                "no answer: the outcome is unknown"
            )
        assert broker.wait() == 1
        assert "File too large" in broker.output
    with told_broker(data) as broker, Peer(broker.ready()) as peer:
        assert peer.values(peer.topic())[:5] == sent


def test_it_listens_on_every_endpoint_that_it_is_given(data, tmp_path):
    path = tmp_path / "s"
    with told_broker(data, "--listen", f"unix:{path}:mode=600") as broker:
        port = broker.ready()
        assert f",unix:{path} " in broker.ready_line
        with Peer(port) as one, Peer(path) as other:
            assert one.topic("seen-by-both") == other.topic("seen-by-both")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    return write_certificate(tmp_path_factory.mktemp("tls") / "both.pem")


def test_over_tls_not_a_byte_goes_in_the_clear(data, certificate):
    endpoint = f"tls:0:interface=127.0.0.1:cert={certificate}"
    with told_broker(data, "--listen", endpoint) as broker:
        broker.ready()
        port = int(re.search(r"tls:127\.0\.0\.1:(\d+)", broker.ready_line)[1])
        context = ssl.create_default_context(cafile=certificate)
        with socket.create_connection(("127.0.0.1", port), PATIENCE) as plain:
            secure = context.wrap_socket(plain, server_hostname="localhost")
            with Peer(secure) as peer:
                partition = peer.topic()
                values = [bytes([number]) * 700_000 for number in range(5)]
                for value in values:
                    assert isinstance(peer.ask(Send, partition, data=frames(value)), Sent)
                assert peer.values(partition) == values


def test_a_handshake_that_fails_is_logged_with_the_reason(data, certificate):
    endpoint = f"tls:0:interface=127.0.0.1:cert={certificate}:ca={certificate}:clients=required"
    with told_broker(data, "--listen", endpoint) as broker:
        broker.ready()
        port = int(re.search(r"tls:127\.0\.0\.1:(\d+)", broker.ready_line)[1])
        context = ssl.create_default_context(cafile=certificate)
        with (
            socket.create_connection(("127.0.0.1", port), PATIENCE) as plain,
            pytest.raises((ssl.SSLError, ConnectionError)),
            context.wrap_socket(plain, server_hostname="localhost") as secure,
        ):
            secure.read(1)
        broker.wait_for(
            r"no TLS connection with 127\.0\.0\.1:\d+ was made: peer did not return a certificate"
        )
        assert "Traceback" not in broker.output


@pytest.mark.parametrize("form", ["tcp", "tcp6", "tls"])
def test_every_kind_of_listener_has_ipv6(data, certificate, form):
    endpoint = rf"{form}:0:interface=\:\:1" + (f":cert={certificate}" if form == "tls" else "")
    with told_broker(data, "--listen", endpoint, "--set", f"http={endpoint}") as broker:
        broker.ready()
        ports = re.findall(rf"{form}:\\:\\:1:(\d+)", broker.output)
        assert len(ports) == 2
        for port in map(int, ports):
            with socket.create_connection(("::1", port), PATIENCE) as plain:
                assert plain.getpeername()[1] == port


def test_sigterm_while_it_recovers_ends_well_too(data):
    with told_broker(data) as broker:
        broker.wait_for("recovering")
        broker.terminate()
        assert broker.wait() in (0, -signal.SIGTERM)
        assert "Traceback" not in broker.output
    with told_broker(data) as again:
        again.ready()


def test_what_is_missing_of_the_way_to_the_directory_is_said(tmp_path):
    with told_broker(tmp_path / "no" / "such" / "place") as broker:
        assert broker.wait() == 1
        assert "FileNotFoundError" in broker.output


def test_an_endpoint_that_is_open_to_others_is_told_of_at_every_start(data):
    with told_broker(data, "--listen", "tcp:0", "--insecure-open") as broker:
        broker.ready()
        assert "can be reached by whoever can reach this machine" in broker.output
        assert "whoever connects can read, write and decide transactions (insecure_open)" in broker.output
