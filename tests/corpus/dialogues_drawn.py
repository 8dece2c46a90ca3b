"""Scripts of dialogues, drawn from a seed: plausible clients, which now and then make a mistake."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from tests.corpus.dialogue_settlement import alter_group, list_parked, release_parked, settle
from tests.corpus.dialogue_streams import claim_stream, deliver, list_streams, release_stream

Request = list[Any]

LONG = 3_600_000_000
NAMES = ("a", "b", "c")
TOPICS = ("t1", "t2", "t3")


def script_of(seed: int) -> list[Any]:
    """The script of that seed."""
    return _Author(Random(seed)).script()


class _Client:
    """What an author knows of a client's present session."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.serial = 0
        self.open: dict[int, str | None] = {}


class _Author:
    """Draws moments, and remembers what there should be by now."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.errs = random.choice((0.0, 0.01, 0.03, 0.06))
        self.topics: dict[str, int] = {}
        self.clients: dict[str, _Client] = {}
        self.sessions: dict[str, int] = {}
        self.prepared: list[tuple[str, int, str]] = []
        self.ended: list[tuple[str, int, str | None]] = []
        self.producers: list[str] = []
        self.epochs: dict[str, int] = {}
        self.sequences: dict[tuple[str, str], int] = {}
        self.numbers: dict[str, int] = {}
        self.members: list[tuple[str, str]] = []
        self.joins = 0
        self.values = 0
        self.xids = 0
        self.correlation = 0
        self.fetches: list[int] = []
        self.moments: list[Any] = []

    # -- choices ----------------------------------------------------------------------------------

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def usually(self, value: Any, *others: Any) -> Any:
        """Mostly the value, now and then one of the others."""
        return self.random.choice(others) if self.chance(self.errs) else value

    def partition(self) -> str:
        known = [f"{topic}/{index}" for topic, count in self.topics.items() for index in range(count)]
        return self.usually(self.random.choice(known or ["t9/0"]), "t9/0", "t1/2", "t2/0")

    def values_drawn(self, most: int = 3) -> Any:
        made: list[Any] = []
        for _ in range(self.random.choice((1, 1, 1, 2, most))):
            self.values += 1
            made.append(self.usually(f"v{self.values}", f"k{self.values}=w", None, "long"))
        return (
            ["packed", *(each or "" for each in made)]
            if self.chance(0.05)
            else self.usually(made, "torn", None)
        )

    def group(self) -> str:
        return self.usually(self.random.choice(("g1", "g2", "g3")), "", "g4", "h1")

    def read_group(self) -> str:
        """A group of consumers that name their partitions, or one with members."""
        return self.random.choice(("h1", "h2")) if self.members and self.chance(0.3) else self.group()

    def xid(self) -> str:
        self.xids += 1
        return self.usually(f"x{self.xids}", "x1", f"other{self.xids}", "y" * 70)

    def offsets(self) -> list[Any]:
        return [
            [self.partition(), self.usually(self.random.choice((0, 0, 0, 1, 2)), -1, 1 << 40),
             self.usually(None, 0, 1, 7), self.usually("", "a note", "m" * 300)]
            for _ in range(self.random.choice((1, 1, 2)))
        ]  # fmt: skip

    def client(self) -> str:
        if not self.clients:
            self.connect("a", shows=True)
        return self.random.choice(sorted(self.clients))

    # -- the script -------------------------------------------------------------------------------

    def script(self) -> list[Any]:
        for name in NAMES:
            self.connect(name)
        self.hear(["a", self.create_topic("a"), self.create_topic("a")])
        self.hear(*([name, self.open_producer(name)] for name in NAMES))
        for _ in range(self.random.randint(25, 40)):
            [act] = self.random.choices(list(_ACTS), list(_ACTS.values()))
            act(self)
        self.ending()
        return self.moments

    def hear(self, *reads: list[Any]) -> None:
        for read in reads:
            self.correlation += sum(1 + (request[0] == "Timed") for request in read[1:])
        self.moments.append(["hear", *reads])

    def talk(self) -> None:
        """One client or two say something each, in one turn."""
        reads = []
        for _ in range(self.random.choice((1, 1, 2, 3))):
            name = self.client()
            requests = [request for _ in range(self.random.choice((1, 1, 2))) for request in self.say(name)]
            reads.append([name, *requests])
        self.hear(*reads)

    def say(self, name: str) -> list[Request]:
        [what] = self.random.choices(list(_WORDS), list(_WORDS.values()))
        made = what(self, name)
        return made if not made or isinstance(made[0], list) else [made]

    def ending(self) -> None:
        """All go away, the broker starts again, and somebody looks at everything."""
        self.restart()
        self.connect("a")
        known = [f"{topic}/{index}" for topic in TOPICS for index in range(3)]
        self.hear(
            [
                "a",
                ["DescribeTopics", {}],
                ["ListTransactions", {"states": [1, 2, 3, 4, 5]}],
                ["ListGroups", {}],
            ]
        )
        self.hear(["a", *(["FetchOffsets", {"group": group}] for group in ("g1", "g2", "g3"))])
        self.hear(["a", *(["DescribeGroup", {"group": group}] for group in ("h1", "h2"))])
        self.hear(["a", ["Fetch", {"positions": [[place, 0, 0] for place in known]}], ["AskStatus", {}]])
        some = [*self.ended, *self.prepared][-5:]
        self.hear(
            ["a", *(["ShowTransaction", {"session": label, "serial": serial}] for label, serial, _ in some)]
        )

    # -- moments ----------------------------------------------------------------------------------

    def connect(self, name: str, shows: bool = False) -> None:
        self.gone(name)
        self.correlation += 1
        self.sessions[name] = self.sessions.get(name, 0) + 1
        self.clients[name] = _Client(f"{name}.{self.sessions[name]}")
        self.moments.append(["connect", name, shows])

    def gone(self, name: str) -> None:
        client = self.clients.pop(name, None)
        if client is not None:
            self.ended += [(client.label, serial, xid) for serial, xid in client.open.items()]

    def connect_again(self) -> None:
        self.connect(self.random.choice(NAMES), self.chance(0.85))

    def lose(self) -> None:
        name = self.random.choice(NAMES)
        self.gone(name)
        self.moments.append(["lose", name])

    def start_again(self, *moment: Any) -> None:
        for name in NAMES:
            self.gone(name)
        self.members = self.members[: self.usually(0, 1)]
        self.moments.append(list(moment))
        for name in NAMES:
            if moment and (self.chance(0.8) or not self.clients):
                self.connect(name, self.chance(0.85))

    def restart(self) -> None:
        self.start_again("restart")

    def kill(self) -> None:
        self.start_again("kill", self.chance(0.5))

    def pass_time(self) -> None:
        self.moments.append(["time", self.random.choice((1_000_000, 20_000_000, 61_000_000, 90_000_000_000))])

    def checkpoint(self) -> None:
        self.moments.append(["checkpoint"])

    # -- requests ---------------------------------------------------------------------------------

    def ping(self, name: str) -> Request:
        return ["Ping", {}]

    def send(self, name: str) -> Request:
        fields: dict[str, Any] = {"partition": self.partition(), "data": self.values_drawn()}
        own = [producer for producer in self.producers if producer[1] == name]
        if own and self.chance(0.6):
            producer = self.usually(self.random.choice(own), *self.producers)
            place = (producer, fields["partition"])
            sequence = self.sequences.get(place, 0)
            data = fields["data"] or []
            fields |= {
                "producer_id": self.usually(producer, 77, "p99"),
                "epoch": self.usually(self.epochs.get(producer, 0), 0, 5),
                "sequence": self.usually(sequence, max(sequence - 1, 0), sequence + 1, 0),
            }
            self.sequences[place] = sequence + (0 if data == "torn" else len(data) - (data[:1] == ["packed"]))
            if self.chance(0.15):
                return [["Send", fields], ["Send", fields]]
        return ["Send", fields]

    def open_producer(self, name: str) -> Request:
        producer = f"p{name}{self.random.choice((1, 1, 2))}"
        if producer in self.producers:
            self.epochs[producer] = self.epochs.get(producer, 0) + 1
        else:
            self.producers.append(producer)
        self.sequences = {place: n for place, n in self.sequences.items() if place[0] != producer}
        return ["OpenProducer", {"name": self.usually(producer, "", "p\n"), "as": producer}]

    def create_topic(self, name: str) -> Request:
        missing = [topic for topic in TOPICS if topic not in self.topics]
        topic = self.random.choice(TOPICS if not missing or self.chance(0.2) else missing)
        count = self.usually(self.random.choice((1, 2, 2, 3)), 0, 2_000)
        if count:
            self.topics.setdefault(topic, min(count, 3))
        small = (
            {"max_message_bytes": 300}
            if self.chance(0.7)
            else {"retention_bytes": 0, "segment_bytes": 1 << 16}
        )
        return ["CreateTopic", {"name": self.usually(topic, "bad name", ""), "partitions": count,
                                "settings": self.usually(small, {"force_messages": 0}),
                                "id": self.usually(topic, "short", "t1")}]  # fmt: skip

    def delete_topic(self, name: str) -> Request:
        topic = self.random.choice(TOPICS)
        if self.chance(0.7):
            self.topics.pop(topic, None)
        return ["DeleteTopic", {"name": topic, "id": self.usually(topic, "t1")}]

    def alter_topic(self, name: str) -> Request:
        topic = self.random.choice(TOPICS)
        changes = self.usually(
            {"max_message_bytes": 400}, {}, {"force_messages": 0}, {"retention_bytes": None}
        )
        named = {"name": topic, "id": self.usually(topic, "t1")}
        if self.chance(0.5):
            return ["AlterTopic", {**named, "changes": changes}]
        partitions = self.topics[topic] = max(self.topics.get(topic, 0), self.random.choice((1, 2, 3, 4)))
        changes = self.random.choice(({}, changes))
        return ["AlterTopic", {**named, "changes": changes, "partitions": self.usually(partitions, 1, -1)}]

    def purge(self, name: str) -> Request:
        starts = [[self.partition(), self.usually(self.random.choice((0, 1, 2)), 99, -1)] for _ in range(2)]
        return ["Purge", {"starts": starts}]

    def describe(self, name: str) -> Request:
        return ["DescribeTopics", {"names": self.usually(None, ["t1", "t3", "none"])}]

    def fetch(self, name: str) -> Request:
        self.fetches.append(self.correlation + 1)
        positions = [
            [self.partition(), self.usually(self.random.choice((0, 0, 1, 2)), 4, 99, -1), self.usually(0, 3)]
            for _ in range(self.random.choice((1, 1, 2, 3)))
        ]
        waits = (
            {"max_wait": self.usually(0, LONG)}
            if self.chance(0.5)
            else {"max_wait": LONG, "min_bytes": 1 << 19}
        )
        return ["Fetch", {"positions": positions, "max_bytes": self.usually(1 << 20, 1, 0), **waits}]

    def cancel(self, name: str) -> Request:
        return ["Cancel", {"fetch": self.random.choice(self.fetches[-3:] or [1])}]

    def offsets_for_time(self, name: str) -> Request:
        return ["OffsetsForTime", {"partitions": [self.partition()], "wall": self.usually(0, 1 << 61)}]

    def find_messages(self, name: str) -> Request:
        wanted = self.random.choice(
            ({"key": "gone"}, {"key": "gone"}, {"id": "none"}, {"key": "", "id": "none"}, {})
        )
        return ["FindMessages", {"partition": self.partition(), "offset": self.usually(0, 1 << 61), **wanted,
                                 "most": self.usually(2, 0)}]  # fmt: skip

    def commit_offsets(self, name: str) -> Request:
        group, offsets = self.read_group(), self.offsets()
        expected = [self.random.choice((None, 0, 1, 2)) for _ in offsets] if self.chance(0.3) else None
        return ["CommitOffsets", {"group": group, "offsets": offsets, "id": self.usually(group or "g", "short"),
                                  "expected": self.usually(expected, [])}]  # fmt: skip

    def fetch_offsets(self, name: str) -> Request:
        return ["FetchOffsets", {"group": self.group(), "partitions": self.usually(None, [self.partition()])}]

    def claim(self, name: str) -> Request:
        group = self.group()
        places = [self.partition() for _ in range(self.random.choice((1, 2)))]
        return ["ClaimPartitions", {"group": group, "member": self.usually(name, ""),
                                    "partitions": self.usually(places, []), "id": group or "g"}]  # fmt: skip

    def list_groups(self, name: str) -> Request:
        return ["ListGroups", {}]

    def delete_group(self, name: str) -> Request:
        group = self.group()
        return ["DeleteGroup", {"group": group, "id": self.usually(group or "g", "g1")}]

    def join(self, name: str) -> Request:
        """Join a group, mostly as another member. Of two groups, so that several members meet."""
        self.joins += 1
        alias, group = f"m{self.joins}", self.usually(self.random.choice(("h1", "h1", "h2")), "g1", "")
        topics = self.random.choice((["t1"], ["t1", "t2"], ["t2", "t3"], []))
        fields = {"group": group, "nonce": self.usually(alias, "m1", "short"), "topics": topics,
                  "pattern": self.usually("" if topics else "t*", "*3"), "id": group or "h", "as": alias,
                  "start": self.random.choice(("earliest", "latest", 1, self.usually(None, -1)))}  # fmt: skip
        if self.chance(0.3):
            fields["name"] = self.random.choice(("w1", "w2"))
        if self.chance(0.4):
            fields["owned"] = f"m{self.random.randint(max(1, self.joins - 3), self.joins)}"  # one of before
        if self.chance(0.2):
            fields["session_timeout"] = self.usually(15_000_000, 0)
        self.members.append((alias, group))
        return ["JoinGroup", fields]

    def attend(self, name: str) -> list[Request]:
        """Let members attend: they keep what they have, release what is asked back, or forget all."""
        made = []
        for alias, group in self.members[-self.random.choice((2, 3, 4)) :]:
            kept = self.usually(self.random.choice(("all", "all", "kept")), "none")
            made.append(["Attend", {"group": self.usually(group, "h1"), "member": alias,
                                    "secret": self.usually(alias, "m1"), "owned": [alias, kept],
                                    "releasing": alias if self.chance(0.5) else "none"}])  # fmt: skip
        return made or [self.join(name)]

    def begin_messages(self, name: str) -> Request:
        """Let a member say what it handles; now and then it is lost soon after."""
        if not self.members:
            return self.join(name)
        alias, group = self.random.choice(self.members[-3:])
        offsets = [[each, self.usually(0, 1)] for each in self.random.sample(range(4), 2)]
        begun = [[self.partition(), self.usually(offsets, []), self.chance(0.3)]]
        return ["BeginMessages", {"group": self.usually(group, "h1"), "member": alias,
                                  "secret": self.usually(alias, "m1"), "begun": begun}]  # fmt: skip

    def leave_group(self, name: str) -> Request:
        if not self.members:
            return self.join(name)
        alias, group = self.members.pop(self.random.randrange(len(self.members)))
        return ["LeaveGroup", {"group": group, "member": alias, "secret": self.usually(alias, "m1"),
                               "for_good": self.chance(0.5)}]  # fmt: skip

    def describe_group(self, name: str) -> Request:
        return ["DescribeGroup", {"group": self.usually(self.random.choice(("h1", "h2")), "g1", "none", "")}]

    def status(self, name: str) -> Request:
        return ["AskStatus", {}]

    def pin(self, name: str) -> Request:
        return [self.random.choice(("PinFiles", "UnpinFiles")), {}]

    def timed(self, name: str) -> Request:
        inner = self.random.choice((self.send, self.commit_offsets, self.decide))(name)
        if isinstance(inner[0], list):
            inner = inner[0]
        return ["Timed", {"request": inner}] if inner[0] != "Add" else inner

    # -- transactions -----------------------------------------------------------------------------

    def transaction(self, name: str) -> list[Request]:
        """One from its first add on, decided in the same read or left open."""
        client = self.clients.get(name)
        if client is None:
            return [self.ping(name)]
        serial = self.usually(client.serial + 1, client.serial, client.serial + 2, 0)
        client.serial = max(client.serial, serial)
        seen = self.usually(self.random.choice((0, 0, 0, max(serial - 1, 0), max(serial - 2, 0))), serial, -1)
        prepares = self.chance(0.45)
        xid = self.xid() if prepares else self.usually(None, self.xid())
        made = [
            self.add(serial, self.usually(xid, None, "late"), seen, self.chance(0.2))
            for _ in range(self.usually(self.random.choice((1, 1, 1, 1, 2, 3)), 0, 5))
        ]
        client.open[serial] = xid
        if self.chance(0.25):
            return made
        return [*made, *self.end(client, serial, xid, seen, prepares)]

    def add(self, serial: int, xid: str | None, seen: int, offsets: bool) -> Request:
        shared: dict[str, Any] = {"serial": serial, "xid": xid, "seen": seen}
        if offsets:
            group = self.read_group()
            return ["AddOffsets", {**shared, "group": group, "offsets": self.offsets(), "id": group or "g"}]
        return ["Add", {**shared, "partition": self.partition(), "data": self.values_drawn()}]

    def add_more(self, name: str) -> Request:
        client = self.clients.get(name)
        if client is None or not client.open:
            return self.send(name)
        serial = self.random.choice(list(client.open))
        return self.add(serial, client.open[serial], 0, self.chance(0.3))

    def go_on(self, name: str) -> list[Request]:
        client = self.clients.get(name)
        if client is None or not client.open:
            return self.transaction(name)
        serial = self.random.choice(list(client.open))
        return self.end(client, serial, client.open[serial] or self.xid(), 0, self.chance(0.5))

    def end(self, client: _Client, serial: int, xid: str | None, seen: int, prepares: bool) -> list[Request]:
        totals = self.usually([0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], None)
        own: dict[str, Any] = {"session": self.usually(0, client.label), "serial": serial}
        client.open.pop(serial, None)
        if prepares:
            self.prepared.append((client.label, serial, xid or "x1"))
            stated = {"serial": serial, "xid": xid or "x1", "totals": totals or [0, 0, 0], "seen": seen}
            first: Request = ["Prepare", stated]
            twice = [first] if self.chance(0.1) else []
            return [first, *twice, *([self.decide("")] if self.chance(0.4) else [])]
        self.ended.append((client.label, serial, xid))
        if self.chance(0.2):
            return [["Rollback", {**own, "seen": seen}]]
        commit = ["Commit", {**own, "totals": totals, "seen": seen}]
        return [commit, *([commit] if self.chance(0.1) else [])]

    def decide(self, name: str) -> Request:
        """Commit or roll back what is prepared, mostly; by number or by xid, as its client, another or an operator."""
        some = self.prepared or self.ended or [("a.1", 1, "x1")]
        label, serial, xid = self.random.choice(some[-4:])
        if self.chance(0.1) and self.ended:
            label, serial, maybe = self.random.choice(self.ended[-4:])
            xid = maybe or xid
        who: dict[str, Any] = self.random.choice(
            (
                {"session": label, "serial": serial},
                {"xid": xid},
                {"session": label, "serial": serial, "xid": xid},
            )
        )
        if self.chance(0.15):
            who = {**who, "operator": True, "by": self.usually("me", ""), "why": self.usually("because", "")}
        if (label, serial, xid) in self.prepared and self.chance(0.8):
            self.prepared.remove((label, serial, xid))
            self.ended.append((label, serial, xid))
        return [self.random.choice(("Commit", "Commit", "Rollback")), who]

    def known(self) -> dict[str, Any]:
        some = [*self.prepared[-4:], *self.ended[-6:]] or [("a.1", 1, None)]
        label, serial, xid = self.random.choice(some)
        if xid is not None and self.chance(0.3):
            return {"xid": xid}
        return self.usually(
            {"session": label, "serial": serial}, {"session": label, "serial": serial + 3}, {}
        )

    def ask(self, name: str) -> Request:
        return ["AskOutcome", self.known()]

    def show(self, name: str) -> Request:
        return ["ShowTransaction", {**self.known(), "max_bytes": self.usually(1 << 16, 0)}]

    def list_transactions(self, name: str) -> Request:
        return [
            "ListTransactions",
            {
                "states": self.usually([], [3], [4, 5], [1, 2, 3, 4, 5]),
                "limit": self.usually(1000, 2, 0),
                "global_prefix": self.usually("", "x"),
                "forced": self.usually(False, True),
            },
        ]

    def forget(self, name: str) -> Request:
        label, serial, xid = self.random.choice(self.ended[-6:] or [("a.1", 1, None)])
        whom = {"session": label, "serial": serial, "xid": self.usually(xid, None)}
        return ["Forget", {**whom, "by": self.usually("me", ""), "why": self.usually("because", "")}]


_ACTS: dict[Callable[[_Author], None], int] = {
    _Author.talk: 60,
    _Author.connect_again: 4,
    _Author.lose: 2,
    _Author.restart: 1,
    _Author.kill: 2,
    _Author.pass_time: 3,
    _Author.checkpoint: 4,
}
_WORDS: dict[Callable[[_Author, str], list[Any]], int] = {
    _Author.ping: 1,
    _Author.send: 12,
    _Author.open_producer: 5,
    _Author.create_topic: 4,
    _Author.delete_topic: 1,
    _Author.alter_topic: 1,
    _Author.purge: 1,
    _Author.describe: 1,
    _Author.fetch: 6,
    _Author.cancel: 2,
    _Author.offsets_for_time: 1,
    _Author.find_messages: 4,
    _Author.transaction: 36,
    _Author.add_more: 5,
    _Author.go_on: 10,
    _Author.decide: 14,
    _Author.ask: 5,
    _Author.show: 3,
    _Author.list_transactions: 3,
    _Author.forget: 4,
    _Author.commit_offsets: 6,
    settle: 5,
    list_parked: 3,
    release_parked: 3,
    alter_group: 3,
    claim_stream: 5,
    deliver: 8,
    release_stream: 1,
    list_streams: 4,
    _Author.fetch_offsets: 3,
    _Author.claim: 6,
    _Author.list_groups: 1,
    _Author.delete_group: 2,
    _Author.join: 8,
    _Author.attend: 16,
    _Author.begin_messages: 6,
    _Author.leave_group: 2,
    _Author.describe_group: 4,
    _Author.status: 2,
    _Author.pin: 2,
    _Author.timed: 4,
}
