"""What a customer knows of an order, by the answers of a real web server."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

import pytest

from examples.shop.drill import customers as customers_module
from examples.shop.drill.customers import Answer, Attempt, Customers
from tests.support.waiting import eventually
from txbroker.drill.broker.broker_process import free_port


@pytest.fixture
def server():
    """A web server that answers with the statuses of its list, then with 201; with None it closes the connection."""
    found = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.statuses, found.forms = [], []
    thread = threading.Thread(target=found.serve_forever, args=(0.01,))
    thread.start()
    yield found
    found.shutdown()
    thread.join()
    found.server_close()


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.server.forms.append({name: value for name, (value,) in parse_qs(body).items()})
        status = self.server.statuses.pop(0) if self.server.statuses else 201
        if status is not None:
            self.send_response(status)
            self.end_headers()

    def log_message(self, *_):
        pass


FORM = {"number": "1", "customer": "ann", "product": "tea"}
MEANINGS = {
    201: Attempt.PLACED, 200: Attempt.PLACED, 400: Attempt.DECLINED, 409: Attempt.DECLINED,
    500: Attempt.FAILED, 502: Attempt.FAILED, None: Attempt.FAILED,
}  # fmt: skip


@pytest.mark.parametrize("status", MEANINGS)
def test_an_answer_means_what_it_says_and_none_means_that_nobody_knows(server, status):
    server.statuses = [status]
    customers = Customers(server.server_port, seed=0, count=1, rate=1.0)
    assert customers.ask(FORM) is MEANINGS[status]
    assert server.forms == [FORM]


def test_where_nobody_listens_nothing_was_placed():
    attempt = Customers(free_port(), seed=0, count=1, rate=1.0).ask(FORM)
    assert attempt is Attempt.UNHEARD
    assert attempt.answer is Answer.REFUSED


def test_customers_order_again_what_has_failed_with_the_same_number_and_the_best_answer_counts(
    server, monkeypatch
):
    monkeypatch.setattr(customers_module, "AGAIN_AFTER", 0.0)
    server.statuses = [409] + [500, None] * 4
    customers = Customers(server.server_port, seed=0, count=1, rate=50.0)
    customers.start()
    eventually(lambda: customers.acknowledged >= 3)
    customers.stop()
    numbers = [form["number"] for form in server.forms]
    assert len(set(numbers)) == len(customers.answers) < len(numbers)
    assert {answer: bool(customers.numbers(answer)) for answer in Answer} == dict.fromkeys(Answer, True)
