"""Dialogues with a broker: scripts of requests by name, sent over its real protocol, and all answers.

A script is a list of moments. ``["hear", [client, [kind, fields], ...], ...]`` gives each client's requests to its
connection in one read, then forces; the others (``connect``, ``lose``, ``restart``, ``kill``, ``time``, ``checkpoint``)
are methods of :class:`Stage`. Whatever a broker makes up (sessions, partitions, producers, generations) stands in there
by a name, so that a script stays valid when numbers, the bytes of records, or optional fields change.

What is heard is told on the level of fields: nothing random, no time of a clock, no size in bytes, no message meant for
people. ``python -m tests.corpus.dialogues`` records all anew, with ``again`` what is heard now of the same scripts;
``more`` puts some new ones before them, for kinds of requests that are new.
"""

from __future__ import annotations

import json
import lzma
import re
import sys
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec
from crc32c import crc32c
from twisted.internet.testing import StringTransport

from journal.constants import MIB
from journal.engine.settings import JournalSettings
from journal.formats import frame
from journal.records import outcome_entry
from journal.records.group_entries import PartitionOffset
from journal.records.outcome_entry import OUTCOMES_TOPIC
from journal.settings import TopicSettings
from journal.transaction_states import State, Totals
from journal.transactions.limits import TransactionLimits
from journal.xid import Xid
from tests.corpus.dialogue_members import Members
from tests.corpus.dialogue_settlement import settled
from tests.corpus.dialogue_streams import STREAM_REQUESTS, Streams, told_of_stream
from tests.support.broker_room import Room
from txbroker.broker.sessions.settings import OrphanAction
from txbroker.server.connections.connections import Connections
from txbroker.server.connections.factory import BrokerFactory
from txbroker.server.connections.read_limits import Intake
from txbroker.server.connections.send_buffer import SendBuffers
from txbroker.server.settings.config import ServiceSettings
from txbroker.wire import messages
from txbroker.wire.codec import answer_decoder, encode
from txbroker.wire.dead_letters import is_dead_topic

FILE = Path(__file__).parent / "dialogues.json.xz"
UNKNOWN = 999
"""The partition, producer or session that a name means which nothing has been made for."""

TINY = TransactionLimits(transactions=3, messages=5, requests=4, partitions=2, total_messages=8, outcomes=6)
SETTINGS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {}),
    ({"outcome_archive": True}, {}),
    ({"limits": TINY}, {"max_groups": 2, "max_producers": 3, "max_topics": 3, "max_group_positions": 4}),
    (
        {"outcome_archive": True, "limits": TINY},
        {"orphan_age": 30_000_000, "orphan_action": OrphanAction.ROLL_BACK},
    ),
    (
        {},
        {
            "orphan_age": 30_000_000,
            "orphan_action": OrphanAction.COMMIT,
            "max_producers_per_session": 2,
            "max_members": 2,
        },
    ),
    ({}, {"orphan_age": 30_000_000, "max_fetches_per_session": 2, "max_sessions": 3}),
]
"""What the broker of a dialogue is set to, of its journal and of itself."""

LEFT_OUT = frozenset({
    "correlation", "message", "age", "prepared_age", "began", "prepared", "ended", "wall", "due_in", "obstacle",
    "bytes", "segments", "length", "identity", "start", "secret", "times", "texts", "address", "owner", "parts",
    "silent", "peer", "kept",
})  # fmt: skip
STATUS = ("topics", "partitions", "pins", "transactions_active", "transactions_in_doubt", "outcomes_forced",
          "outcomes_contradicted", "orphans_ended", "sessions", "producers", "groups", "messages_in",
          "repeated_sends", "requests_parked")  # fmt: skip


def named_id(name: str) -> bytes:
    """The id that a script calls so."""
    return name.encode().ljust(16, b".")[: 1 if name == "short" else 16]


def xid(name: str) -> Xid:
    return Xid(2 if name.startswith("other") else 1, name.encode()[:80], b"branch")


class Client:
    """A connection of the broker's real protocol, and the answers that have come."""

    def __init__(self, stage: Stage, name: str, label: str) -> None:
        self.name, self.label = name, label
        self.protocol = stage.factory.buildProtocol(None)
        self.transport = StringTransport()
        self.decoder = answer_decoder(1 << 26)
        self.sent: dict[int, Totals] = {}
        assert self.protocol is not None
        self.protocol.makeConnection(self.transport)

    def read(self) -> list[tuple[Any, bytes]]:
        data = self.transport.value()
        self.transport.clear()
        return [(head, bytes(part)) for head, part in self.decoder.feed(data)]


class Stage:
    """A broker, its clients, and what names of the script mean."""

    def __init__(self, settings: int) -> None:
        journal, broker = SETTINGS[settings]
        self.room = Room(JournalSettings(low_water_bytes=0, file_bytes=MIB, **journal), **broker)
        self.clients: dict[str, Client] = {}
        self.former: dict[str, messages.FormerSession] = {}
        self.opened: dict[str, int] = {}
        self.sessions: dict[str, int] = {}
        self.partitions: dict[str, int] = {}
        self.producers: dict[str, int] = {}
        self.generations: dict[tuple[str, int], int] = {}
        self.streams = Streams(named_id)
        self.members = Members(UNKNOWN)
        self.asked: dict[int, tuple[str, Any]] = {}
        self.correlation = 0
        self.doors()

    def doors(self) -> None:
        broker, clock = self.room.broker, self.room.timers
        intake, send_buffers = Intake(broker.accounts, 1 << 20), SendBuffers(clock)
        connections = Connections(broker, intake, send_buffers, ServiceSettings(data="d"), clock)
        self.factory = BrokerFactory(connections)

    def play(self, script: list[Any]) -> list[Any]:
        """Play it; return what was heard at each moment."""
        return [getattr(self, what)(*arguments) for what, *arguments in script]

    # -- moments ----------------------------------------------------------------------------------

    def hear(self, *reads: list[Any]) -> list[Any]:
        for name, *requests in reads:
            client = self.clients.get(name)
            if client is None:
                self.correlation += sum(1 + (kind == "Timed") for kind, _ in requests)
            else:
                client.protocol.dataReceived(b"".join(self.encoded(client, *each) for each in requests))
        return self.carry()

    def connect(self, name: str, shows: bool) -> list[Any]:
        self.lose(name)
        self.opened[name] = self.opened.get(name, 0) + 1
        client = self.clients[name] = Client(self, name, f"{name}.{self.opened[name]}")
        hello = messages.Hello(0, messages.MAGIC, list(messages.VERSIONS), name)
        former = self.former.get(name) if shows else None
        login = messages.Login(self.next(name, None), "ANONYMOUS", b"", former)
        client.protocol.dataReceived(encode(hello) + encode(login))
        return self.carry()

    def lose(self, name: str) -> list[Any]:
        client = self.clients.pop(name, None)
        if client is not None:
            client.protocol.connectionLost()
        return self.carry()

    def restart(self) -> list[Any]:
        self.clients.clear()
        self.room.restart()
        return self.again()

    def kill(self, power: bool) -> list[Any]:
        self.clients.clear()
        self.room.engine.sync()
        disk = self.room.filesystem
        self.room.filesystem = disk.crash_clone(1) if power else disk.kill_clone()
        self.room.start()
        return self.again()

    def again(self) -> list[Any]:
        self.doors()
        return self.carry()

    def time(self, micros: int) -> list[Any]:
        """Time passes, and what is due by it is done."""
        self.room.clock.advance(micros)
        self.room.timers.advance(micros / 1e6)
        broker, engine = self.room.broker, self.room.engine
        broker.expire_transactions(engine.now())
        broker.dead_letters.try_again()
        broker.sending.room.expire(engine.now())
        engine.housekeeping.retain(engine.now())
        return self.carry()

    def checkpoint(self) -> list[Any]:
        self.carry()
        self.room.engine.housekeeping.checkpoint_inline()
        return self.carry()

    def carry(self) -> list[Any]:
        """Force, publish, let the answers out; return them by client."""
        self.room.engine.sync()
        for _ in range(3):
            self.room.timers.advance(0)
        heard = []
        for name in sorted(self.clients):
            client = self.clients[name]
            for answer, data in client.read():
                self.learn(client, answer)
                heard.append([name, answer.correlation, self.told(answer, data)])
            if client.transport.disconnecting:
                heard.append([name, "closed"])
                del self.clients[name]
                client.protocol.connectionLost()
        return heard

    # -- requests ---------------------------------------------------------------------------------

    def next(self, name: str, what: Any) -> int:
        self.correlation += 1
        self.asked[self.correlation] = (name, what)
        return self.correlation

    def encoded(self, client: Client, kind: str, fields: dict[str, Any]) -> bytes:
        request, data = self.request(client, kind, fields)
        return encode(request, data)

    def request(self, client: Client, kind: str, fields: dict[str, Any]) -> tuple[Any, bytes]:
        fields = dict(fields)
        data, count = _data(fields.pop("data", None))
        alias = fields.pop("as", None)
        named = alias or fields.get(
            "stream" if kind == "ClaimStream" else "member" if kind == "Attend" else "group"
        )
        correlation = self.next(client.name, (kind, named, fields.get("group")))
        if kind == "Timed":
            inner, data = self.request(client, *fields["request"])
            return messages.Timed(correlation, inner), data
        of_streams = {"stream", "epoch", "delivery"} if kind in STREAM_REQUESTS else set()
        of_members = {"owned", *({"member", "secret", "releasing"} if "secret" in fields else ())}
        made = {
            name: self.members.field(name, value)
            if name in of_members
            else self.streams.field(name, value)
            if name in of_streams
            else self.field(client, fields, name)
            for name, value in fields.items()
        }
        if "runs" in fields:
            made["runs"] = [(made["runs"], len(data))]
        if kind in ("Add", "AddOffsets"):
            sent = client.sent.get(fields["serial"], Totals(0, 0, 0))
            checksum = crc32c(data, sent.checksum)
            client.sent[fields["serial"]] = Totals(sent.messages + count, sent.requests + 1, checksum)
        return getattr(messages, kind)(correlation, **made), data

    def field(self, client: Client, fields: dict[str, Any], name: str) -> Any:
        value = fields[name]
        match name, value:
            case "session" | "producer_id" | "partition" | "runs", str():
                return {**self.sessions, **self.producers, **self.partitions}.get(value, UNKNOWN)
            case "partitions", list():
                return [self.partitions.get(each, UNKNOWN) for each in value]
            case "positions", _:
                return [(self.partitions.get(each, UNKNOWN), start, end) for each, start, end in value]
            case "starts", _:
                return [(self.partitions.get(each, UNKNOWN), start) for each, start in value]
            case "offsets" | "settled" | "begun", _:
                return [self.settles(fields, name, each) for each in value]
            case "xid", str():
                return xid(value)
            case "id" | "nonce", _:
                return named_id(value)
            case "global_prefix" | "key", _:
                return value.encode()
            case "states", _:
                return [State(each) for each in value]
            case "settings", dict():
                return TopicSettings(**value)
            case "totals", [messages_more, requests_more, wrong]:
                sent = client.sent.get(fields["serial"], Totals(0, 0, 0))
                return Totals(
                    sent.messages + messages_more, sent.requests + requests_more, sent.checksum ^ wrong
                )
        return value

    def settles(self, fields: dict[str, Any], name: str, each: Any) -> Any:
        """A position, what is settled or begun in a partition, or an offset by itself, as the request has it."""
        group = fields["group"]
        if name != "offsets":
            partition = self.partitions.get(each[0], UNKNOWN)
            make = settled if name == "settled" else messages.BegunMessages
            return make(partition, self.generations.get((group, partition), 0), *each[1:])
        return self.offset(group, *each) if isinstance(each, list) else each

    def offset(
        self, group: str, place: str, offset: int, generation: int | None, metadata: str
    ) -> PartitionOffset:
        """A position; a generation of None is the one that was claimed last."""
        partition = self.partitions.get(place, UNKNOWN)
        if generation is None:
            generation = self.generations.get((group, partition), 0)
        return PartitionOffset(partition, offset, generation, metadata)

    # -- answers ----------------------------------------------------------------------------------

    def learn(self, client: Client, answer: Any) -> None:
        _, what = self.asked.get(answer.correlation, ("", None))
        match answer:
            case messages.Welcome():
                self.sessions[client.label] = answer.session
                self.former[client.name] = messages.FormerSession(answer.session, answer.start, answer.secret)
            case messages.Topics() if what is not None and what[0] == "CreateTopic":
                for topic in answer.topics:
                    for partition in topic.partitions:
                        self.partitions[f"{topic.name}/{partition.index}"] = partition.number
            case messages.ProducerOpened():
                self.producers[what[1]] = answer.producer_id
            case messages.Claimed():
                for partition, generation in answer.claims:
                    self.generations[what[1], partition] = generation
            case messages.StreamHeld():
                self.streams.learn(what[1], answer)
            case messages.Joined():
                self.members.joined(what[1], answer)
            case messages.Attended():
                self.members.learn(what[1], answer)
                for each in answer.assigned:
                    self.generations[what[2], each.partition] = each.generation

    def told(self, answer: Any, data: bytes) -> Any:
        """An answer by its names, with what its data mean."""
        if isinstance(answer, messages.Status):
            return ["Status", [answer.values[each] for each in STATUS]]
        if isinstance(answer, messages.FilesPinned):
            return ["FilesPinned", answer.lsn > 0, answer.held]
        told = self.plain(answer)
        if isinstance(answer, messages.Fetched | messages.TransactionShown):
            lengths = (
                [each.length for each in answer.partitions]
                if isinstance(answer, messages.Fetched)
                else [size for _, size in answer.parts]
            )
            place = 0
            for length in lengths:
                told.append(_values(data[place : place + length]))
                place += length
        return told

    def plain(self, value: Any) -> Any:
        match value:
            case Xid():
                return str(value)
            case msgspec.Struct():
                fields = self.told_fields(value)
                kept = {
                    name: self.plain(each)
                    for name, each in fields.items()
                    if each not in ("", None, {}, [], b"")
                }
                return [type(value).__name__, kept]
            case Enum():
                return value.name
            case bytes():
                return value.decode("latin-1").rstrip(".")
            case str():
                return re.sub(
                    r"\b(\d+)-(\d+)\b", lambda found: f"{self.label(int(found[1]))}-{found[2]}", value
                )
            case dict():
                return {name: self.plain(each) for name, each in value.items()}
            case list() | tuple():
                return [self.plain(each) for each in value]
        return value

    def told_fields(self, value: msgspec.Struct) -> dict[str, Any]:
        fields = {name: getattr(value, name) for name in value.__struct_fields__ if name not in LEFT_OUT}
        for name, label in (("session", self.label), ("member", self.members.name_of)):
            if name in fields:
                fields[name] = label(fields[name])
        if isinstance(value, messages.TopicInfo) and is_dead_topic(value.name):
            del fields["id"]  # the broker's, and random
        if "why" in fields and not fields["why"].startswith("because"):
            del fields["why"]
        if "numbers" in fields:
            fields["numbers"] = {
                name: number for name, number in (fields["numbers"] or {}).items() if name != "wall"
            }
        if isinstance(value, messages.StreamHeld | messages.StreamInfo):
            fields = told_of_stream(value)
        if isinstance(value, messages.TransactionShown):
            fields["contents"] = [[partition, count] for partition, count, _ in value.contents]
        return fields

    def label(self, session: int) -> str | int:
        return next((label for label, number in self.sessions.items() if number == session), session)

    # -- in the end -------------------------------------------------------------------------------

    def archived(self) -> list[Any]:
        """What the outcome archive says, if there is one."""
        topic = self.room.engine.catalog.topics.get(OUTCOMES_TOPIC)
        if topic is None:
            return []
        found, [store] = [], topic.partitions
        while data := store.read(store.start_offset + len(found), MIB):
            for message in frame.decode_run(data, store.start_offset + len(found)):
                entry = outcome_entry.unpack(message.value or b"")
                parts = [[p.topic, p.index, p.number, p.base_offset, p.count] for p in entry.parts]
                who = [self.label(entry.session), entry.serial, entry.state.name, entry.cause.name]
                found.append(
                    [*who, self.plain(entry.xid), entry.heuristic, entry.messages, entry.requests, parts]
                )
        return found


def _data(drawn: Any) -> tuple[bytes, int]:
    """The frames that a script has as values, and how many; "torn" is a run that is cut."""
    if drawn is None:
        return b"", 0
    if drawn == "torn":
        return frame.encode(b"torn", 1)[:-1], 1
    if drawn[0] == "packed":
        inner = b"".join(frame.encode_inner(n, each.encode(), 1) for n, each in enumerate(drawn[1:]))
        return frame.encode_wrapper(inner, len(drawn) - 1, 1), len(drawn) - 1
    made = [_message(each) for each in drawn]
    return b"".join(made), len(made)


def _message(value: str | None) -> bytes:
    """``key=value`` has a key and a header; None is a tombstone; "long" is over what a topic may take."""
    if value is None:
        return frame.encode(None, 1, b"gone")
    if value == "long":
        return frame.encode(b"long " * 200, 1)
    key, found, rest = value.partition("=")
    return (
        frame.encode(rest.encode(), 1, key.encode(), {"h": b"1"}) if found else frame.encode(key.encode(), 1)
    )


def _values(data: bytes) -> list[Any]:
    found = []
    for message in frame.decode_run(data):
        value = None if message.value is None else message.value.decode()[:9]
        found.append(
            [message.offset, value] if message.key is None else [message.offset, message.key.decode(), value]
        )
    return found


def perform(settings: int, script: list[Any]) -> list[Any]:
    """Play a script; return all that was heard, and the archive in the end."""
    stage = Stage(settings)
    heard = stage.play(script)
    return [*heard, stage.archived()]


def recorded() -> list[dict[str, Any]]:
    """All dialogues as they were recorded."""
    return [json.loads(line) for line in lzma.decompress(FILE.read_bytes()).splitlines()]


def record(count: int) -> None:
    """Make scripts from the seeds 0 to below ``count``, play them, and keep what was heard."""
    _write([_played(seed) for seed in range(count)])


def record_more(count: int) -> None:
    """Put as many new dialogues before the recorded ones, which stay as they are."""
    known = recorded()
    first = 1 + max(dialogue["seed"] for dialogue in known)
    _write([*(_played(seed) for seed in range(first, first + count)), *known])


def record_again() -> None:
    """Play the scripts that there are, keep what is heard now, and print the seeds of those that differ."""
    dialogues = recorded()
    for dialogue in dialogues:
        heard = json.loads(json.dumps(perform(dialogue["settings"], dialogue["script"])))
        if heard != dialogue["heard"]:
            print(dialogue["seed"])
        dialogue["heard"] = heard
    _write(dialogues)


def _played(seed: int) -> dict[str, Any]:
    from tests.corpus.dialogues_drawn import script_of

    settings, script = seed % len(SETTINGS), script_of(seed)
    return {"seed": seed, "settings": settings, "script": script, "heard": perform(settings, script)}


def _write(dialogues: list[dict[str, Any]]) -> None:
    text = "\n".join(map(json.dumps, dialogues))
    FILE.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))


if __name__ == "__main__":
    if sys.argv[1:] == ["again"]:
        record_again()
    elif sys.argv[1:] == ["more"]:
        record_more(8)
    else:
        record(160)
