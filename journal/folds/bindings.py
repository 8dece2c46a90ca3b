"""The bindings of one exchange, and where they send a message (decision 0055).

The rules are those of RabbitMQ 3.13: ``split_topic_key`` and ``trie_match`` of its rabbit_db_topic_exchange.erl, and
rabbit_exchange_type_headers.erl. Keys, patterns and headers come from strangers: no message costs more than the nodes
of all patterns times the words of its key, or than the arguments of all bindings.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final, NamedTuple, Protocol

import msgspec

from journal.errors import LimitExceeded
from journal.records.queue_entries import Binding, ExchangeKind

Destination = tuple[bool, str]
"""Whether it is an exchange (otherwise it is a queue), and its name."""

ONE_WORD: Final = "*"
"""The word of a pattern that stands for any one word."""
ANY_WORDS: Final = "#"
"""The word of a pattern that stands for any number of words, also none."""
MAX_LOOKED_AT: Final = 65_536
"""Most nodes of patterns that are looked at for one message: 40 ms."""
MATCH_ARGUMENT: Final = "x-match"
"""The argument that says how many of the others must match; it is never compared with a header itself."""

Identity = tuple[str, bool, str, bytes]
_TypedValue = tuple[type, object]
_VOID: Final[_TypedValue] = (type(None), None)


class BindingTable:
    """The bindings of one exchange. Iteration returns them in the order in which they were added.

    To add or remove one takes as long as its key and arguments are, however many there are. A table that is filled
    again with what iteration returned gives the same destinations in the same order.
    """

    def __init__(self, kind: ExchangeKind) -> None:
        self._numbers: dict[Identity, int] = {}
        """A number for each binding; it grows in the order of addition."""
        self._bindings: dict[int, Binding] = {}
        self._destinations: dict[int, Destination] = {}
        self._next = 0
        self._index = _INDEXES[kind]()

    def __len__(self) -> int:
        return len(self._bindings)

    def __iter__(self) -> Iterator[Binding]:
        return iter(self._bindings.values())

    def __contains__(self, binding: Binding) -> bool:
        """Return whether there is a binding with that destination, key and arguments."""
        return identity_of(binding) in self._numbers

    def add(self, binding: Binding) -> None:
        """Add a binding; asserts that it is not there."""
        identity, number = identity_of(binding), self._next
        assert identity not in self._numbers, f"it adds {binding}, which is there already"
        self._next += 1
        self._numbers[identity] = number
        self._bindings[number] = binding
        self._destinations[number] = binding.to_exchange, binding.destination
        self._index.add(number, binding)

    def remove(self, binding: Binding) -> None:
        """Remove a binding; asserts that it is there."""
        number = self._numbers.pop(identity_of(binding), None)
        assert number is not None, f"it removes {binding}, which is not there"
        del self._bindings[number], self._destinations[number]
        self._index.remove(number, binding)

    @property
    def looked_at(self) -> int:
        """How many bindings, or nodes of patterns, were looked at for all messages so far."""
        return self._index.looked_at

    def destinations(self, key: str, headers: Mapping[str, object]) -> Collection[Destination]:
        """Return where a message with that routing key and these headers goes, each destination once.

        They are in the order in which the first matching binding to each of them was added.
        """
        numbers = sorted(self._index.matching(key, headers))
        return tuple(dict.fromkeys([self._destinations[number] for number in numbers]))


def identity_of(binding: Binding) -> Identity:
    """Return what tells a binding from others. Arguments are packed, because 1, 1.0 and True are equal unpacked."""
    packed = msgspec.msgpack.encode(binding.arguments)
    return binding.destination, binding.to_exchange, binding.key, packed


class _Index(Protocol):
    """Finds the bindings that match a message; it has their numbers. ``looked_at`` counts what that has cost."""

    looked_at: int

    def add(self, number: int, binding: Binding) -> None:
        """Add a binding under a number that is not in use."""

    def remove(self, number: int, binding: Binding) -> None:
        """Remove the binding that was added under that number."""

    def matching(self, key: str, headers: Mapping[str, object]) -> Collection[int]:
        """Return the numbers of the bindings that match, each once, in any order."""


class _FanoutIndex:
    """Every binding matches."""

    def __init__(self) -> None:
        self.looked_at = 0
        self._all: set[int] = set()

    def add(self, number: int, binding: Binding) -> None:  # noqa: ARG002
        self._all.add(number)

    def remove(self, number: int, binding: Binding) -> None:  # noqa: ARG002
        self._all.remove(number)

    def matching(self, key: str, headers: Mapping[str, object]) -> Collection[int]:  # noqa: ARG002
        self.looked_at += len(self._all)
        return self._all


class _DirectIndex:
    """A binding matches if its key is the message's."""

    def __init__(self) -> None:
        self.looked_at = 0
        self._by_key: dict[str, set[int]] = {}

    def add(self, number: int, binding: Binding) -> None:
        self._by_key.setdefault(binding.key, set()).add(number)

    def remove(self, number: int, binding: Binding) -> None:
        of_key = self._by_key[binding.key]
        of_key.remove(number)
        if not of_key:
            del self._by_key[binding.key]

    def matching(self, key: str, headers: Mapping[str, object]) -> Collection[int]:  # noqa: ARG002
        found = self._by_key.get(key, ())
        self.looked_at += 1 + len(found)
        return found


class _Node:
    """A node of the trie of patterns: the bindings whose pattern ends there, and the nodes of the next words."""

    __slots__ = ("children", "ends", "repeats")

    def __init__(self, word: str) -> None:
        self.repeats = word == ANY_WORDS
        self.ends: set[int] = set()
        self.children: dict[str, _Node] = {}

    def reach(self, reached: set[_Node]) -> None:
        """Add the node to those reached, and what lies behind it without a further word: ``#`` may stand for none."""
        node: _Node | None = self
        while node is not None and node not in reached:
            reached.add(node)
            node = node.children.get(ANY_WORDS)


class _TopicIndex:
    """A binding matches if its pattern does. The patterns are a trie of words.

    A message goes through the trie word by word, with the set of all nodes reached so far, as through a
    nondeterministic automaton: each node is looked at once for each word, however many ways lead to it.
    """

    def __init__(self) -> None:
        self.looked_at = 0
        self._root = _Node("")

    def add(self, number: int, binding: Binding) -> None:
        node = self._root
        for word in _words(binding.key):
            child = node.children.get(word)
            if child is None:
                child = node.children[word] = _Node(word)
            node = child
        node.ends.add(number)

    def remove(self, number: int, binding: Binding) -> None:
        words, path = _words(binding.key), [self._root]
        for word in words:
            path.append(path[-1].children[word])
        path[-1].ends.remove(number)
        while words and not path[-1].ends and not path[-1].children:
            path.pop()
            del path[-1].children[words.pop()]

    def matching(self, key: str, headers: Mapping[str, object]) -> Collection[int]:  # noqa: ARG002
        reached: set[_Node] = set()
        self._root.reach(reached)
        looked_at = 0
        for word in _words(key):
            before, reached = reached, set()
            looked_at += len(before)
            if looked_at > MAX_LOOKED_AT:
                raise LimitExceeded(
                    f"the patterns of a topic exchange have more than {MAX_LOOKED_AT} nodes for routing key {key!r}; "
                    "nothing was sent. Use fewer words, or have its bindings use '#' less"
                )
            for node in before:
                if node.repeats:
                    node.reach(reached)
                for branch in (word, ONE_WORD):
                    if (child := node.children.get(branch)) is not None:
                        child.reach(reached)
        self.looked_at += looked_at + sum([len(node.ends) for node in reached])
        return set[int]().union(*(node.ends for node in reached))


def _words(key: str) -> list[str]:
    """Return the words of a key or pattern. An empty key has none, but two dots have an empty word between them."""
    return key.split(".") if key else []


class _HeadersRule(NamedTuple):
    """The headers that a binding wants, and whether it needs all of them or any."""

    needs_all: bool
    wanted: list[tuple[str, _TypedValue]]

    @classmethod
    def of(cls, binding: Binding) -> _HeadersRule:
        """Return the rule of a binding. Any unknown ``x-match`` is "all", as in RabbitMQ, where none can be bound."""
        _, match = _typed(dict(binding.arguments).get(MATCH_ARGUMENT))
        with_x = match in (b"all-with-x", b"any-with-x")
        wanted = [
            (name, _typed(value))
            for name, value in binding.arguments
            if name != MATCH_ARGUMENT and (with_x or not name.startswith("x-"))
        ]
        return cls(match not in (b"any", b"any-with-x"), wanted)

    def matches(self, headers: Mapping[str, _TypedValue]) -> bool:
        """Return whether headers match. An argument without a value wants a header of that name, of any value."""
        for name, value in self.wanted:
            is_there = name in headers if value is _VOID else headers.get(name) == value
            if is_there is not self.needs_all:
                return is_there
        return self.needs_all


class _HeadersIndex:
    """A binding matches if its arguments match the message's headers. All bindings are tried."""

    def __init__(self) -> None:
        self.looked_at = 0
        self._rules: dict[int, _HeadersRule] = {}

    def add(self, number: int, binding: Binding) -> None:
        self._rules[number] = _HeadersRule.of(binding)

    def remove(self, number: int, binding: Binding) -> None:  # noqa: ARG002
        del self._rules[number]

    def matching(self, key: str, headers: Mapping[str, object]) -> Collection[int]:  # noqa: ARG002
        self.looked_at += len(self._rules)
        typed = {name: _typed(value) for name, value in headers.items()}
        return [number for number, rule in self._rules.items() if rule.matches(typed)]


def _typed(value: object) -> _TypedValue:
    """Return a value so that it equals those of its type alone; text is its UTF-8, as headers of messages are bytes."""
    if isinstance(value, str):
        value = value.encode(errors="surrogatepass")
    return _VOID if value is None else (type(value), value)


_INDEXES: Final[Mapping[ExchangeKind, Callable[[], _Index]]] = {
    ExchangeKind.DIRECT: _DirectIndex,
    ExchangeKind.FANOUT: _FanoutIndex,
    ExchangeKind.TOPIC: _TopicIndex,
    ExchangeKind.HEADERS: _HeadersIndex,
    ExchangeKind.DEFAULT: _DirectIndex,
}
