"""Test where the bindings of an exchange send a message: by RabbitMQ's rules, in a known order, with little work."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from journal.folds import bindings
from journal.folds.bindings import BindingTable
from journal.records.queue_entries import Binding, ExchangeKind, Scalar
from tests.support.thoroughness import examples

KEYS = st.lists(st.sampled_from(["a", "", "*", "#"]), max_size=5).map(".".join)
"""Of messages, too: there a star is a word as any other."""
NAN = float("nan")


def binding(
    destination: str, key: str = "", *, to_exchange: bool = False, **arguments: Scalar | str
) -> Binding:
    """A binding with arguments whose names have dashes, and whose text is UTF-8."""
    named = [
        (name.replace("_", "-"), value.encode() if isinstance(value, str) else value)
        for name, value in sorted(arguments.items())
    ]
    return Binding("x", key, destination, to_exchange, tuple(named))


def table(kind: ExchangeKind, *added: Binding) -> BindingTable:
    found = BindingTable(kind)
    for each in added:
        found.add(each)
    return found


def queues(found: BindingTable, key: str = "", **headers: object) -> list[str]:
    """The names of the destinations of a message, which are all queues."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    destinations = found.destinations(key, named)
    assert not any(to_exchange for to_exchange, _ in destinations)
    return [name for _, name in destinations]


def split(key: str) -> list[str]:
    return key.split(".") if key else []


def matches(pattern: list[str], words: list[str]) -> bool:
    """What the rules of topics say, tried in all ways."""
    if not pattern:
        return not words
    first, *rest = pattern
    if first == "#":
        return any(matches(rest, words[taken:]) for taken in range(len(words) + 1))
    return bool(words) and first in ("*", words[0]) and matches(rest, words[1:])


@contextmanager
def at_most(lines: int) -> Iterator[None]:
    """Fail as soon as more lines of the module have been run than this."""
    left = lines

    def count(frame, event, argument):
        nonlocal left
        if frame.f_code.co_filename != bindings.__file__:
            return None
        left -= event == "line"
        assert left >= 0, f"it runs more than {lines} lines"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        yield
    finally:
        sys.settrace(before)


# -- all kinds ---------------------------------------------------------------------------------------


MATCHES: dict[ExchangeKind, Callable[[Binding, str], bool]] = {
    ExchangeKind.DIRECT: lambda each, key: each.key == key,
    ExchangeKind.FANOUT: lambda each, key: True,
    ExchangeKind.TOPIC: lambda each, key: matches(split(each.key), split(key)),
    ExchangeKind.HEADERS: lambda each, key: type(dict(each.arguments)["version"]) is int,
}
"""Whether a message with that key and the header version=1 matches, for each kind."""


class TableMachine(RuleBasedStateMachine):
    """Adds, removes, restores and routes; the model is the list of bindings, of which it tries each."""

    @initialize(kind=st.sampled_from([each for each in ExchangeKind if each is not ExchangeKind.DEFAULT]))
    def begin(self, kind: ExchangeKind) -> None:
        self.kind, self.table = kind, BindingTable(kind)
        self.there: list[Binding] = []

    @rule(
        key=KEYS,
        name=st.sampled_from("pqr"),
        to_exchange=st.booleans(),
        version=st.sampled_from([1, 1.0, True]),
    )
    def add(self, key: str, name: str, to_exchange: bool, version: Scalar) -> None:
        each = binding(name, key, to_exchange=to_exchange, version=version)
        is_there = repr(each) in map(repr, self.there)
        assert (each in self.table) is is_there
        if is_there:
            with pytest.raises(AssertionError, match="there already"):
                self.table.add(each)
        else:
            self.table.add(each)
            self.there.append(each)

    @precondition(lambda self: self.there)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        each = self.there.pop(data.draw(st.integers(0, len(self.there) - 1)))
        self.table.remove(each)
        assert each not in self.table
        with pytest.raises(AssertionError, match="not there"):
            self.table.remove(each)

    @rule()
    def restore(self) -> None:
        self.table = table(self.kind, *self.table)

    @rule(keys=st.lists(KEYS, min_size=3, max_size=8))
    def route(self, keys: list[str]) -> None:
        for key in [*keys, *(each.key for each in self.there[:3])]:
            found = [(b.to_exchange, b.destination) for b in self.there if MATCHES[self.kind](b, key)]
            assert list(self.table.destinations(key, {"version": 1})) == list(dict.fromkeys(found))

    @invariant()
    def has_all_in_the_order_of_their_addition(self) -> None:
        """They are compared as texts: 1, 1.0 and True are equal."""
        assert len(self.table) == len(self.there)
        assert [*map(repr, self.table)] == [*map(repr, self.there)]

    def teardown(self) -> None:
        for each in self.there:
            self.table.remove(each)
        assert not len(self.table)
        assert is_empty(self.table)


def is_empty(found: BindingTable) -> bool:
    """Whether nothing is left of what was removed."""
    index = found._index
    kept = [value for name, value in vars(index).items() if name != "looked_at"]
    kept += [found._numbers, found._bindings, found._destinations]
    if isinstance(index, bindings._TopicIndex):
        kept += [index._root.children, index._root.ends]
        kept.remove(index._root)
    return not any(kept)


TestTable = TableMachine.TestCase
TestTable.settings = settings(max_examples=examples(100), stateful_step_count=30)


def test_a_queue_and_an_exchange_of_one_name_are_two_destinations() -> None:
    found = table(
        ExchangeKind.DIRECT, binding("d", "k", to_exchange=True), binding("d", "k"), binding("e", "l")
    )
    assert list(found.destinations("k", {})) == [(True, "d"), (False, "d")]


def test_a_destination_comes_once_where_its_first_binding_is() -> None:
    first, second, third = binding("q", "a.#"), binding("r", "#"), binding("q", "*.b")
    found = table(ExchangeKind.TOPIC, first, second, third)
    assert queues(found, "a.b") == ["q", "r"]
    found.remove(first)
    assert queues(found, "a.b") == ["r", "q"]
    found.add(first)
    assert queues(found, "a.b") == queues(table(ExchangeKind.TOPIC, *found), "a.b") == ["r", "q"]


@pytest.mark.parametrize("kind", ExchangeKind)
def test_the_order_is_that_of_addition_however_many_were_added_and_removed_before(kind: ExchangeKind) -> None:
    found, each = BindingTable(kind), [binding(f"q{number}", "k") for number in range(100)]
    for number in range(100):
        found.add(each[number])
        if number >= 4:
            found.remove(each[number - 4])
        assert queues(found, "k") == [one.destination for one in each[max(0, number - 3) : number + 1]]


def test_bindings_are_told_from_each_other_by_the_types_of_their_arguments() -> None:
    each = [binding("q", "k", a=value) for value in (1, 1.0, True, b"1", None, NAN)]
    found = table(ExchangeKind.DIRECT, *each)
    assert len(found) == len(each)
    found.remove(binding("q", "k", a=float("nan")))
    found.remove(binding("q", "k", a=True))
    assert [dict(one.arguments)["a"] for one in found] == [1, 1.0, b"1", None]
    assert True not in [value for one in found for _, value in one.arguments if isinstance(value, bool)]


def test_which_exchange_a_binding_names_does_not_matter_to_its_table() -> None:
    found = table(ExchangeKind.FANOUT, Binding("x", "k", "q"))
    assert Binding("y", "k", "q") in found


# -- topics ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("", [""], ["a", "."]),
        ("*", ["a", "*", "#"], ["", ".", "a.b"]),
        ("#", ["", ".", "a", "a.b", "a..b"], []),
        ("a", ["a"], ["", "a.", ".a", "b", "aa"]),
        ("a.*", ["a.b", "a."], ["a", "a.b.c", "a.."]),
        ("a.#", ["a", "a.", "a.b", "a.b.c"], ["", "b", "ab"]),
        ("#.a", ["a", ".a", "b.a", "a.a", "c.b.a"], ["", "a.b", "ba"]),
        ("*.#", ["a", "a.b", "."], [""]),
        ("#.*", ["a", "a.b", "."], [""]),
        ("#.#", ["", "a", "a.b"], []),
        ("a..b", ["a..b"], ["a.b", "a.c.b", "a...b"]),
        ("a.*.b", ["a..b", "a.c.b"], ["a.b"]),
        ("a.#.b", ["a.b", "a..b", "a.c.d.b"], ["a", "b", "a.b.c"]),
        (".", ["."], ["", ".."]),
        ("a*", ["a*"], ["a", "ab"]),
        ("#.a.#.b.#", ["a.b", "c.a.c.b.c", "b.a.b"], ["b.a", "a"]),
    ],
)
def test_a_pattern_is_compared_word_by_word(pattern: str, matching: list[str], others: list[str]) -> None:
    found = table(ExchangeKind.TOPIC, binding("q", pattern))
    assert [key for key in matching + others if queues(found, key)] == matching


@given(
    st.lists(KEYS, min_size=5, max_size=30, unique=True),
    st.lists(KEYS, min_size=10, max_size=20, unique=True),
    st.data(),
)
def test_patterns_match_as_they_do_one_by_one_also_when_others_were_removed(
    patterns: list[str], keys: list[str], data: st.DataObject
) -> None:
    found = table(ExchangeKind.TOPIC, *(binding(pattern, pattern) for pattern in patterns))
    gone = data.draw(st.sets(st.sampled_from(patterns)))
    for pattern in sorted(gone):
        found.remove(binding(pattern, pattern))
    left = [pattern for pattern in patterns if pattern not in gone]
    for key in keys:
        assert queues(found, key) == [each for each in left if matches(split(each), split(key))]


@pytest.mark.parametrize(
    "pattern", ["#." * 60 + "zzz", "#.*." * 30 + "zzz", "#.a." * 40 + "zzz", "#.#.a.#." * 12 + "b"]
)
def test_a_hostile_pattern_takes_no_more_work_than_its_words_times_those_of_the_key(pattern: str) -> None:
    key = "a." * 100
    found = table(ExchangeKind.TOPIC, binding("q", pattern))
    with at_most(20 * len(split(pattern)) * len(split(key))):
        assert not queues(found, key)
    assert queues(found, key + pattern.rpartition(".")[2]), "the pattern matches something"


def test_a_key_is_not_compared_with_the_patterns_of_other_words() -> None:
    found = table(ExchangeKind.TOPIC, *(binding(f"q{n}", f"region.{n}.kind.*") for n in range(1_000)))
    with at_most(150):
        assert queues(found, "region.500.kind.b") == ["q500"]


# -- headers -----------------------------------------------------------------------------------------


def is_sent(arguments: dict[str, Scalar | str], **headers: object) -> bool:
    return bool(queues(table(ExchangeKind.HEADERS, binding("q", **arguments)), **headers))


@pytest.mark.parametrize("match", [{}, {"x_match": "all"}])
def test_all_arguments_must_be_among_the_headers_unless_it_says_otherwise(match: dict[str, str]) -> None:
    arguments = {"a": 1, "b": "two", **match}
    assert is_sent(arguments, a=1, b=b"two")
    assert is_sent(arguments, a=1, b=b"two", c=3)
    assert not is_sent(arguments, a=1)
    assert not is_sent(arguments, a=1, b=b"three")
    assert not is_sent(arguments)


def test_any_argument_is_enough_if_it_says_so() -> None:
    arguments = {"a": 1, "b": "two", "x_match": "any"}
    assert is_sent(arguments, a=1)
    assert is_sent(arguments, a=2, b=b"two")
    assert not is_sent(arguments, a=2, b=b"three", c=1)
    assert not is_sent(arguments)


@pytest.mark.parametrize(
    ("match", "is_everything"),
    [(None, True), ("all", True), ("all-with-x", True), ("any", False), ("any-with-x", False)],
)
def test_without_arguments_all_of_them_are_there_but_not_any(match: str | None, is_everything: bool) -> None:
    arguments: dict[str, Scalar | str] = {} if match is None else {"x_match": match}
    assert is_sent(arguments) is is_everything
    assert is_sent(arguments, a=1, x_match=match) is is_everything


def test_arguments_that_begin_with_x_count_only_if_it_says_so() -> None:
    assert is_sent({"x_match": "all", "a": 1, "x_b": 2}, a=1)
    assert not is_sent({"x_match": "any", "a": 1, "x_b": 2}, x_b=2)
    assert is_sent({"x_match": "all", "x_b": 2}), "no argument is left, and all of none are there"
    assert not is_sent({"x_match": "any", "x_b": 2}, x_b=2)
    assert not is_sent({"x_match": "all-with-x", "a": 1, "x_b": 2}, a=1)
    assert is_sent({"x_match": "all-with-x", "a": 1, "x_b": 2}, a=1, x_b=2)
    assert is_sent({"x_match": "any-with-x", "a": 1, "x_b": 2}, x_b=2)
    assert not is_sent({"x_match": "any-with-x", "a": 1, "x_b": 2}, a=2, x_b=1)
    assert not is_sent({"x_match": "all-with-x", "x_match_b": 2}), "only x-match itself is left out"
    assert is_sent({"x_match": "all", "xa": 1}, xa=1)
    assert not is_sent({"x_match": "all", "xa": 1}, xa=2)


@pytest.mark.parametrize("value", [None, b"", 0, False, [1], {"a": 1}])
def test_an_argument_without_a_value_wants_a_header_of_any_value(value: object) -> None:
    for match in ("all", "any"):
        assert is_sent({"a": None, "x_match": match}, a=value)
        assert not is_sent({"a": None, "x_match": match}, b=value)


@pytest.mark.parametrize("value", [1, 1.0, True, "1", b"", 0, 0.0, False])
def test_a_value_equals_those_of_its_type_alone(value: Scalar | str) -> None:
    values = [1, 1.0, True, b"1", b"", 0, 0.0, False, None, [], [1]]
    alike = [each for each in values if is_sent({"a": value}, a=each)]
    assert [*map(repr, alike)] == [repr(value.encode() if isinstance(value, str) else value)]


def test_text_equals_its_utf8() -> None:
    assert is_sent({"a": "für"}, a="für")
    assert is_sent({"a": "für"}, a="für".encode())
    assert not is_sent({"a": "für"}, a="für".encode("latin-1"))
    assert not is_sent({"a": "für"}, a="\udc00")


def test_the_key_does_not_matter_to_headers_nor_headers_to_keys() -> None:
    assert queues(table(ExchangeKind.HEADERS, binding("q", "k", a=1)), "other", a=1) == ["q"]
    for kind in (ExchangeKind.DIRECT, ExchangeKind.FANOUT, ExchangeKind.TOPIC):
        assert queues(table(kind, binding("q", "k", a=1, x_match="all")), "k", a=2) == ["q"]


def test_headers_are_compared_with_each_binding_and_the_destinations_are_in_their_order() -> None:
    found = table(
        ExchangeKind.HEADERS,
        binding("r", a=1),
        binding("q", a=2),
        binding("p", x_match="any", b=None),
        binding("r", b=5),
    )
    assert queues(found, a=1, b=5) == ["r", "p"]
    found.remove(binding("r", a=1))
    assert queues(found, a=1, b=5) == ["p", "r"]
