"""The model of exchanges and bindings: where a message goes. It knows nothing of the broker's code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

DIRECT, FANOUT, TOPIC, HEADERS = range(4)
"""The kinds, with the numbers of the wire protocol."""
FIRST = {
    "": DIRECT, "amq.direct": DIRECT, "amq.fanout": FANOUT, "amq.topic": TOPIC, "amq.headers": HEADERS,
    "amq.match": HEADERS,
}  # fmt: skip
"""The exchanges that are there from the start, with the numbers 1, 2, ..."""


class Exchange(NamedTuple):
    """An exchange. At one that is ``delayed`` messages wait that say so."""

    name: str
    number: int
    kind: int
    internal: bool = False
    auto_delete: bool = False
    alternate: str | None = None
    delayed: bool = False


class Rule(NamedTuple):
    """A binding: from an exchange to a queue, or to another exchange. ``arguments`` are sorted by name."""

    exchange: str
    key: str
    to: str
    to_exchange: bool = False
    arguments: tuple[tuple[str, bytes | None], ...] = ()


class Died(NamedTuple):
    """That a message has died in a queue of one cause, so often."""

    queue: str
    cause: str
    count: int


class Message(NamedTuple):
    """What a client has sent, or what has become of it as a dead letter: then it tells its deaths, the latest first.

    ``expiration`` is how long it may be in a queue, in µs. ``delay`` is how many ms it is to wait at the first delayed
    exchange that it comes to; from there on it is the same number with a minus.
    """

    value: bytes
    key: str
    headers: tuple[tuple[str, bytes], ...] = ()
    expiration: int | None = None
    deaths: tuple[Died, ...] = ()
    priority: int = 0
    delay: int | None = None

    @property
    def is_to_wait(self) -> bool:
        """Whether it waits at the next delayed exchange."""
        return self.delay is not None and self.delay > 0


def waiting_name(exchange: Exchange) -> str:
    """Return the name by which :meth:`Topology.route` tells that a message waits at an exchange: no queue has it."""
    return f"amq.delayed.{exchange.number}"


class Topology:
    """All exchanges, and all bindings in the order in which they were made."""

    def __init__(self) -> None:
        self.exchanges = {
            name: Exchange(name, number, kind) for number, (name, kind) in enumerate(FIRST.items(), 1)
        }
        self.rules: list[Rule] = []
        self.next_number = len(FIRST) + 1
        self.on_alternate: Callable[[], object] = lambda: None
        """Called when an exchange finds no way, and has another one."""

    def copy(self) -> Topology:
        """Return one that stays as this is now."""
        copy = Topology()
        copy.exchanges, copy.rules, copy.next_number = (
            dict(self.exchanges),
            list(self.rules),
            self.next_number,
        )
        return copy

    def by_number(self, number: int) -> Exchange | None:
        """Return the exchange with that number."""
        return next((each for each in self.exchanges.values() if each.number == number), None)

    def declare(self, wanted: Exchange) -> Exchange:
        """Make an exchange; it gets the next number."""
        made = self.exchanges[wanted.name] = wanted._replace(number=self.next_number)
        self.next_number += 1
        return made

    def drop_exchange(self, name: str) -> None:
        """End an exchange, with the bindings from it and to it."""
        del self.exchanges[name]
        self.rules = [
            each
            for each in self.rules
            if each.exchange != name and not (each.to_exchange and each.to == name)
        ]

    def drop_queue(self, name: str) -> None:
        """End the bindings to a queue."""
        self.rules = [each for each in self.rules if each.to_exchange or each.to != name]

    def rules_of(self, exchange: str) -> list[Rule]:
        """Return the bindings of an exchange."""
        return [each for each in self.rules if each.exchange == exchange]

    def route(self, exchange: Exchange, message: Message, queues: Mapping[str, object]) -> set[str]:
        """Return the names of the queues that a message goes to, and of the exchanges at which it waits."""
        found: set[str] = set()
        seen: set[str] = set()
        left = [exchange.name]
        while left:
            name = left.pop()
            if name in seen:
                continue
            seen.add(name)
            if not name:  # the alternate exchange of another
                found |= {message.key} & queues.keys()
                continue
            known = self.exchanges[name]
            if known.delayed and message.is_to_wait:
                found.add(waiting_name(known))
                continue
            fitting = [
                rule
                for rule in self.rules_of(name)
                if (rule.to_exchange or rule.to in queues) and _fits(known.kind, rule, message)
            ]
            if not fitting and known.alternate is not None and known.alternate in self.exchanges:
                self.on_alternate()
                left.append(known.alternate)
            left += [rule.to for rule in fitting if rule.to_exchange]
            found |= {rule.to for rule in fitting if not rule.to_exchange}
        return found


def _fits(kind: int, rule: Rule, message: Message) -> bool:
    if kind == FANOUT:
        return True
    if kind == DIRECT:
        return rule.key == message.key
    if kind == TOPIC:
        return _fits_words(_words(rule.key), _words(message.key))
    return _fits_headers(dict(rule.arguments), dict(message.headers))


def _words(text: str) -> list[str]:
    return text.split(".") if text else []


def _fits_words(pattern: list[str], words: list[str]) -> bool:
    if not pattern:
        return not words
    head, rest = pattern[0], pattern[1:]
    if head == "#":
        return any(_fits_words(rest, words[gone:]) for gone in range(len(words) + 1))
    return bool(words) and head in ("*", words[0]) and _fits_words(rest, words[1:])


def _fits_headers(arguments: dict[str, bytes | None], headers: dict[str, bytes]) -> bool:
    how = arguments.pop("x-match", b"all") or b"all"
    if not how.endswith(b"-with-x"):
        arguments = {name: value for name, value in arguments.items() if not name.startswith("x-")}
    fits = [
        name in headers and (value is None or headers[name] == value) for name, value in arguments.items()
    ]
    return any(fits) if how.startswith(b"any") else all(fits)
