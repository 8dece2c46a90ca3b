"""Test the load generator with a peer that answers as told: it counts correct answers and refuses all others."""

import contextlib
import itertools
import socket
import threading

import pytest

from benchmarks.harness.frames import SINGLE
from benchmarks.harness.load import FIRST_CORRELATION, Pipeline, SendDialogue, Tally, converse, send_chunks
from benchmarks.harness.peer import UnexpectedAnswer
from txbroker.wire.codec import answer_decoder, encode, request_decoder
from txbroker.wire.messages import Refused, Send, Sent


class Answering:
    """A peer's end of a pair of sockets; ``answer`` makes of a request's head what is sent back."""

    def __init__(self, answer):
        self.socket, self._theirs = socket.socketpair()
        self.socket.settimeout(30)
        self.decoder = answer_decoder(1 << 20)
        self.heads = []
        self._answer = answer
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        decoder = request_decoder(1 << 20)
        with contextlib.suppress(OSError):
            while data := self._theirs.recv(1 << 16):
                for head, frames in decoder.feed(data):
                    assert frames == SINGLE
                    self.heads.append(head)
                    self._theirs.sendall(self._answer(head))

    def close(self):
        self.socket.close()
        self._theirs.shutdown(socket.SHUT_RDWR)
        self._thread.join(30)
        self._theirs.close()


@pytest.fixture
def answering():
    with contextlib.ExitStack() as stack:

        def make(answer):
            peer = Answering(answer)
            stack.callback(peer.close)
            return peer

        yield make


def sent(head):
    return encode(Sent(head.correlation, 0))


class TestAPipeline:
    def test_waits_for_the_answer_to_everything_that_it_sent(self, answering):
        peer = answering(sent)
        tally = Pipeline(peer, send_chunks([3], SINGLE, 64, 8), 32).run(0.05)
        assert tally.begun == tally.completed == len(peer.heads) > 0
        assert tally.rate == tally.completed / tally.seconds

    def test_sends_to_each_partition_in_turn(self, answering):
        peer = answering(sent)
        Pipeline(peer, send_chunks([3, 4, 5, 6], SINGLE, 64, 8), 32).run(0.02)
        assert [head.partition for head in peer.heads[:8]] == [3, 4, 5, 6, 3, 4, 5, 6]

    def test_never_has_a_number_on_its_way_twice(self, answering):
        peer = answering(sent)
        Pipeline(peer, send_chunks([3], SINGLE, 64, 8), 32).run(0.02)
        for _, heads in itertools.groupby(enumerate(peer.heads), lambda one: one[0] // 32):
            numbers = [head.correlation for _, head in heads]
            assert len(set(numbers)) == len(numbers)

    def test_cannot_be_made_with_too_few_requests_for_its_window(self, answering):
        with pytest.raises(AssertionError):
            Pipeline(answering(sent), send_chunks([3], SINGLE, 64, 8), 60)

    def test_takes_no_refusal_for_an_answer(self, answering):
        peer = answering(lambda head: encode(Refused(head.correlation, "DiskFull", "no room")))
        with pytest.raises(UnexpectedAnswer, match="Refused instead of Sent: DiskFull: no room"):
            Pipeline(peer, send_chunks([3], SINGLE, 64, 8), 32).run(0.05)

    def test_notices_an_answer_to_something_else(self, answering):
        peer = answering(lambda head: encode(Sent(head.correlation + 1, 0)))
        with pytest.raises(UnexpectedAnswer, match="correlation numbers"):
            Pipeline(peer, send_chunks([3], SINGLE, 64, 8), 32).run(0.05)

    def test_notices_that_the_connection_is_closed(self, answering):
        peer = answering(sent)
        peer._theirs.shutdown(socket.SHUT_RDWR)
        with pytest.raises((UnexpectedAnswer, BrokenPipeError)):
            Pipeline(peer, send_chunks([3], SINGLE, 64, 8), 32).run(0.05)


REQUEST = encode(Send(FIRST_CORRELATION, 3), SINGLE)


class TestDialogues:
    def test_have_one_request_on_its_way_each_and_complete_all_that_they_begin(self, answering):
        peers = [answering(sent) for _ in range(3)]
        tally = converse([SendDialogue(peer.socket, peer.decoder, REQUEST) for peer in peers], 0.05)
        assert tally.begun == tally.completed == sum(len(peer.heads) for peer in peers) >= 3
        assert len(tally.latencies) == tally.completed

    def test_put_together_an_answer_that_comes_in_pieces(self, answering):
        def in_pieces(head):
            data = sent(head)
            peer._theirs.sendall(data[:5])
            return data[5:]

        peer = answering(in_pieces)
        tally = converse([SendDialogue(peer.socket, peer.decoder, REQUEST)], 0.02)
        assert tally.completed == len(peer.heads)

    def test_notice_an_answer_to_something_else(self, answering):
        peer = answering(lambda head: encode(Sent(7, 0)))
        with pytest.raises(UnexpectedAnswer, match="another request"):
            converse([SendDialogue(peer.socket, peer.decoder, REQUEST)], 0.05)

    def test_talk_to_an_echo_too(self, answering):
        peer = answering(lambda head: encode(head, SINGLE))
        dialogue = SendDialogue(peer.socket, request_decoder(1 << 20), REQUEST, Send)
        assert converse([dialogue], 0.02).completed == len(peer.heads)


def test_a_quantile_is_a_latency_that_was_measured():
    tally = Tally()
    tally.latencies.extend([5.0, 1.0, 4.0, 2.0, 3.0])
    assert [tally.quantile(share) for share in (0.0, 0.5, 1.0)] == [1.0, 3.0, 5.0]
