"""Customers: they order over HTTP without a pause, and remember what they were answered."""

from __future__ import annotations

import enum
import http.client
import random
import threading
import time
import uuid
from collections import Counter
from contextlib import closing
from urllib.parse import urlencode

NAMES = ("ann", "bob", "cleo", "dan", "eve")
WANTED = ("tea", "cake", "cup", "tea", "cake", "cup", "tea", "cake", "cup", "unicorn")
"""What they choose from. There is no unicorn in stock, so such an order is refused."""

CSRF = "c" * 32
"""What a browser is given with a form, and sends back: any 32 letters, if cookie and header have the same."""

TIMEOUT = 15.0
"""Seconds after which an answer is not waited for any more."""


AGAIN_AFTER = 0.2
"""Seconds until a customer asks again."""


class Answer(enum.Enum):
    """What became of an order, as far as its customer knows. Of several attempts the first of these counts."""

    ACKNOWLEDGED = "acknowledged"
    UNKNOWN = "unknown"
    REFUSED = "refused"


class Attempt(enum.Enum):
    """What came of asking once."""

    PLACED = "placed"
    DECLINED = "declined, because it cannot be had"
    FAILED = "failed, and perhaps placed"
    UNHEARD = "unheard, because nobody listens"

    @property
    def answer(self) -> Answer:
        """Return what the customer knows of the order by this attempt."""
        if self is Attempt.PLACED:
            return Answer.ACKNOWLEDGED
        return Answer.UNKNOWN if self is Attempt.FAILED else Answer.REFUSED


class Customers:
    """So many customers, each in a thread of its own, who order so often a second each."""

    def __init__(self, port: int, seed: int, count: int, rate: float) -> None:
        self.answers: dict[str, Answer] = {}
        self.attempts: Counter[Attempt] = Counter()
        self._port = port
        self._pause = 1 / rate
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=self._order_all_day, args=(random.Random(f"{seed}/{number}"),))
            for number in range(count)
        ]

    @property
    def acknowledged(self) -> int:
        """Return how many orders have been acknowledged."""
        return len(self.numbers(Answer.ACKNOWLEDGED))

    def numbers(self, answer: Answer) -> set[str]:
        """Return the numbers of the orders that were answered so."""
        with self._lock:
            return {number for number, given in self.answers.items() if given is answer}

    def start(self) -> None:
        """Have them come."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Have them go, once they have been answered."""
        self._closing.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    def _order_all_day(self, chance: random.Random) -> None:
        while not self._closing.is_set():
            self._order(chance)
            time.sleep(chance.uniform(0.0, 2 * self._pause))

    def _order(self, chance: random.Random) -> None:
        """Order once; some try again, with the same number, if they are not told that it is placed."""
        number = str(uuid.UUID(int=chance.getrandbits(128), version=4))
        form = {"number": number, "customer": chance.choice(NAMES), "product": chance.choice(WANTED)}
        answers = []
        for _ in range(chance.randint(1, 5)):
            attempt = self.ask(form)
            answers.append(attempt.answer)
            if attempt in (Attempt.PLACED, Attempt.DECLINED):
                break
            time.sleep(AGAIN_AFTER)
        with self._lock:
            self.answers[number] = min(answers, key=list(Answer).index)

    def ask(self, form: dict[str, str]) -> Attempt:
        """Send a form once."""
        attempt = self._sent(form)
        with self._lock:
            self.attempts[attempt] += 1
        return attempt

    def _sent(self, form: dict[str, str]) -> Attempt:
        headers = {
            "Content-Type": "application/x-www-form-urlencoded",
            "Cookie": f"csrftoken={CSRF}",
            "X-CSRFToken": CSRF,
        }
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=TIMEOUT)
        with closing(connection):
            try:
                connection.connect()
            except OSError:
                return Attempt.UNHEARD
            try:
                connection.request("POST", "/orders", urlencode(form), headers)
                status = connection.getresponse().status
            except (OSError, http.client.HTTPException):
                return Attempt.FAILED
        if 200 <= status < 300:
            return Attempt.PLACED
        return Attempt.DECLINED if 400 <= status < 500 else Attempt.FAILED
