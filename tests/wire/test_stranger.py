"""Test that a client written from docs/wire_protocol.md alone can use the whole protocol."""

from __future__ import annotations

import re
import struct
from base64 import b64decode, b64encode
from hashlib import pbkdf2_hmac, sha256
from hmac import digest

import amqp
import pytest
from crc32c import crc32c
from msgspec import msgpack

from tests.support.broker_process import AmqpBroker, BrokerProcess
from tests.wire.stranger import BY_NAME, TEXT, Stranger

pytestmark = pytest.mark.slow

XID = {"format_id": 1, "global_id": b"day-2013-01-01", "branch": b"flights"}
OTHER = {"format_id": 1, "global_id": b"day-2013-01-02", "branch": b"flights"}
GROUP_ID = b"g" * 16
SALT, ITERATIONS = b"salt" * 4, 4_096


def message() -> bytes:
    """One frame: the data of the document's worked ``Send``."""
    [block] = re.findall(r"```hex send\n(.*?)```", TEXT, re.DOTALL)
    worked = bytes.fromhex("".join(line[6:] for line in block.splitlines()))
    head = int.from_bytes(worked[4:8], "big")
    return worked[12 + head :]


FRAME = message()
TOTALS = {"messages": 1, "requests": 1, "checksum": crc32c(FRAME)}


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as broker:
        yield broker


@pytest.fixture
def own_broker(tmp_path):
    with AmqpBroker(tmp_path / "data") as broker:
        yield broker


def test_all_of_the_protocol_is_used_from_its_document_alone(own_broker):
    broker = own_broker
    first = Stranger(broker.port)
    offered = first.ask("Hello", magic="txbroker", versions=[3], client="a stranger")
    assert (offered[""], offered["version"]) == ("Offered", 3)
    assert {"SCRAM-SHA-256", "ANONYMOUS"} <= set(offered["mechanisms"])
    welcome = first.ask("Login", mechanism="ANONYMOUS")
    assert (welcome[""], welcome["principal"]) == ("Welcome", "anonymous")
    first.close()
    stranger = Stranger(broker.port)
    after = {"session": welcome["session"], "start": welcome["start"], "secret": welcome["secret"]}
    again = stranger.log_in("a stranger", after=after)
    assert again["secret"] == welcome["secret"]
    assert stranger.ask("Ping")[""] == "Done"
    number = _topics_and_sends(stranger)
    _reading(stranger, number)
    _one_phase(stranger, number)
    _two_phases(stranger, number, again["session"])
    _groups(stranger, number)
    _members(stranger, number)
    _refusals(stranger, number)
    assert stranger.ask("AskStatus")["values"]["topics"] == 1
    pinned = stranger.ask("PinFiles")
    assert stranger.ask("UnpinFiles") == pinned | {"correlation": pinned["correlation"] + 1}
    _deliveries(stranger, number)
    _queues(stranger)
    _consumers(stranger)
    _leases(stranger, broker.amqp_port)
    assert stranger.ask("Purge", starts=[(number, 1)])[""] == "Done"
    [topic] = stranger.ask("DescribeTopics")["topics"]
    assert topic["partitions"][0]["start_offset"] == 1
    altered = stranger.ask("AlterTopic", name="t", id=topic["id"], changes={"force_messages": 7})
    assert altered["topics"][0]["settings"] != topic["settings"]
    grown = stranger.ask("AlterTopic", name="t", id=topic["id"], changes={}, partitions=3)
    assert [part["index"] for part in grown["topics"][0]["partitions"]] == [0, 1, 2]
    new = grown["topics"][0]["partitions"][2]["number"]
    assert stranger.ask("Send", FRAME, partition=new)["base_offset"] == 0
    _later(stranger, new)
    assert stranger.ask("DeleteTopic", name="t", id=topic["id"])["error"] == "ScheduledForTopic"
    assert stranger.ask("DeleteTopic", name="t", id=topic["id"], scheduled=True)[""] == "Done"
    _sessions(stranger, broker.port)
    _users_and_rules(stranger)
    _by_password(stranger, broker.port)
    broker.stop()
    going, _ = stranger.hear()
    assert (going[""], going["correlation"], going["after"]) == ("GoingAway", 0, 1_000_000)
    assert "stopping" in going["reason"]
    stranger.close()
    assert stranger.asked | stranger.told == BY_NAME.keys()


def _later(stranger, number):
    told = stranger.ask("AskSchedule")
    due = told["now"] + 3_600_000_000
    envelope = _envelope(number, 1, due)
    ids = []
    for place in range(3):
        sent = stranger.ask("Send", envelope, partition=told["partitions"][2])
        ids.append((2, sent["base_offset"], int.from_bytes(envelope[4:8], "big")))
        assert sent["base_offset"] == place
    listed = stranger.ask("ListScheduled")
    assert [tuple(each["id"]) for each in listed["messages"]] == ids
    assert (listed["messages"][0]["topic"], listed["messages"][0]["due"], listed["next"]) == ("t", due, None)
    [waits] = stranger.ask("ShowScheduled", ids=ids[:1], frames=True)["states"]
    assert (waits["state"], waits["due"], waits["partition"], waits["size"]) == (
        "waits",
        due,
        number,
        len(FRAME),
    )
    assert stranger.ask("CancelScheduled", ids=ids[:1])["states"][0]["state"] == "cancelled"
    assert stranger.ask("ReleaseScheduled")[""] == "Done", "nothing is held"


def _envelope(number, clock, due):
    """A frame around the worked one, which says when and for which partition."""
    attribute = msgpack.encode([struct.pack(">QB", number, clock), []])
    body = FRAME[24:]
    flag = body[12:16]
    tail = struct.pack(">qI", due, 1) + flag + struct.pack(">I", len(attribute)) + attribute + FRAME
    return struct.pack(">IIQq", 24 + len(tail), crc32c(tail), 0, 0) + tail


def _sessions(stranger, port):
    other = Stranger(port)
    number = other.log_in("a stranger")["session"]
    [mine, others] = stranger.ask("ListSessions")["sessions"]
    assert (others["session"], others["client"], mine["client"]) == (number, "a stranger", "a stranger")
    assert stranger.ask("CloseSession", session=number, by="ada", why="a test")[""] == "Done"
    assert "ada: a test" in other.hear()[0]["reason"]
    other.close()
    assert stranger.ask("CloseSession", session=1)["error"] == "UnknownSession"


def _users_and_rules(stranger):
    user = {"name": "ada", "scram": _verifier()}
    assert stranger.ask("AlterUser", user=user, names=[], existing="NO")[""] == "Done"
    assert stranger.ask("AlterUser", user=user, names=[], existing="NO")["error"] == "UserExists"
    named = {"name": "ada", "certificates": ["CN=ada"], "roles": ["loaders"]}
    assert stranger.ask("AlterUser", user=named, names=["certificates", "roles"])[""] == "Done"
    rule = {
        "holder": "role:loaders", "effect": "allow", "resource": "topic", "pattern": "ord", "is_prefix": True,
        "rights": ["read", "write"],
    }  # fmt: skip
    assert stranger.ask("AlterRule", rule=rule)["rules"] == [rule]
    less = stranger.ask("AlterRule", rule=rule | {"rights": ["read"]}, forget=True)["rules"]
    assert (less, stranger.ask("ListRules")["rules"]) == ([rule | {"rights": ["write"]}],) * 2
    asked = {"principal": "ada", "resource": "topic", "name": "orders"}
    checked = stranger.ask("CheckAccess", right="write", **asked)
    assert (checked["is_allowed"], checked["rules"]) == (True, less)
    assert not stranger.ask("CheckAccess", right="read", **asked)["is_allowed"]
    [ada] = stranger.ask("ListUsers")["users"]
    assert (ada["iterations"], ada["certificates"], ada["sessions"]) == (ITERATIONS, ["CN=ada"], 0)
    assert stranger.ask("SwitchAccess", what="enable")["error"] == "InvalidSetting", "nobody may administer"


def _by_password(stranger, port):
    """SCRAM-SHA-256 in the words of RFC 5802, without a channel."""
    other = Stranger(port)
    assert other.ask("Hello", magic="txbroker", versions=[3], client="ada's")[""] == "Offered"
    begun = "n=ada,r=nonce"
    challenge = other.ask("Login", mechanism="SCRAM-SHA-256", data=f"n,,{begun}".encode())["data"].decode()
    nonce, salt, iterations = (part[2:] for part in challenge.split(","))
    assert (b64decode(salt), int(iterations)) == (SALT, ITERATIONS)
    without_proof = f"c=biws,r={nonce}"
    client_key, stored_key, server_key = _keys()
    signed = f"{begun},{challenge},{without_proof}".encode()
    signature = digest(stored_key, signed, "sha256")
    proof = b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True))).decode()
    welcome = other.ask("Login", mechanism="", data=f"{without_proof},p={proof}".encode())
    assert (welcome[""], welcome["principal"], welcome["valid_for"]) == ("Welcome", "ada", 0)
    assert welcome["data"] == b"v=" + b64encode(digest(server_key, signed, "sha256"))
    assert stranger.ask("ListUsers")["users"][0]["sessions"] == 1
    assert stranger.ask("RemoveUser", name="ada")[""] == "Done"
    assert "ada was removed" in other.hear()[0]["reason"]
    other.close()
    stranger.told |= other.told


def _keys():
    salted = pbkdf2_hmac("sha256", b"analytical", SALT, ITERATIONS)
    client_key = digest(salted, b"Client Key", "sha256")
    return client_key, sha256(client_key).digest(), digest(salted, b"Server Key", "sha256")


def _verifier():
    _, stored_key, server_key = _keys()
    return {"salt": SALT, "iterations": ITERATIONS, "stored_key": stored_key, "server_key": server_key}


def _topics_and_sends(stranger):
    made = stranger.ask("CreateTopic", name="t", partitions=1, settings={"retention_age": 3_600_000_000})
    [topic] = made["topics"]
    assert topic["settings"]["retention_age"] == 3_600_000_000
    assert stranger.ask("DescribeTopics", names=["t"])["topics"] == [topic]
    number = topic["partitions"][0]["number"]
    producer = stranger.ask("OpenProducer", name="loader")
    named = {"producer_id": producer["producer_id"], "epoch": producer["epoch"], "sequence": 0}
    assert stranger.ask("Send", FRAME, partition=number, **named)["base_offset"] == 0
    assert stranger.ask("Send", FRAME, partition=number, **named)["base_offset"] == 0, "the same one"
    timed = stranger.ask("Timed", FRAME, request=("Send", 99, {"partition": number}))
    assert timed["answer"]["base_offset"] == 1
    assert timed["times"]["force"] > 0
    return number


def _reading(stranger, number):
    fetched, data = stranger.read("Fetch", positions=[(number, 0, 1)])
    [part] = fetched["partitions"]
    assert (part["length"], part["next_offset"], part["high_watermark"]) == (len(FRAME), 1, 2)
    assert data[24:] == FRAME[24:]  # behind what the broker has stamped
    assert stranger.ask("OffsetsForTime", partitions=[number], wall=1)["offsets"] == [(number, 0)]
    looked = stranger.ask("FindMessages", partition=number, offset=0, id=b"nobody's")
    assert (looked["offsets"], looked["next_offset"], looked["high_watermark"]) == ([], 2, 2)
    waits = stranger.say("Fetch", positions=[(number, 2, 0)], max_wait=20_000_000)
    stranger.say("Cancel", fetch=waits)
    assert stranger.hear()[0]["correlation"] == waits


def _one_phase(stranger, number):
    stranger.say("Add", FRAME, serial=1, partition=number)
    committed = stranger.ask("Commit", serial=1, totals=TOTALS)
    assert committed["placements"] == [{"partition": number, "base_offset": 2, "count": 1}]


def _two_phases(stranger, number, session):
    stranger.say("Add", FRAME, serial=2, partition=number, xid=XID, seen=1)
    group = {"group": "g", "offsets": [{"partition": number, "offset": 1}], "id": GROUP_ID}
    stranger.say("AddOffsets", serial=2, xid=XID, **group)
    assert stranger.ask("Prepare", serial=2, xid=XID, totals=TOTALS | {"requests": 2})[""] == "Done"
    [listed] = stranger.ask("ListTransactions")["transactions"]
    assert (listed["session"], listed["serial"], listed["state"]) == (session, 2, "PREPARED")
    assert (listed["xid"], listed["topics"], listed["groups"]) == (XID, ["t"], ["g"])
    shown, data = stranger.read("ShowTransaction", xid=XID)
    assert (shown["parts"], shown["contents"]) == ([(number, len(FRAME))], [(number, 1, len(FRAME))])
    assert data == FRAME
    assert stranger.ask("AskOutcome", xid=XID)["state"] == "PREPARED"
    assert stranger.ask("Commit", xid=XID)[""] == "Committed"
    assert stranger.ask("AskOutcome", xid=XID)["cause"] == "CLIENT"
    stranger.say("Add", FRAME, serial=3, partition=number, xid=OTHER, seen=2)
    assert stranger.ask("Prepare", serial=3, xid=OTHER, totals=TOTALS)[""] == "Done"
    assert stranger.ask("Rollback", xid=OTHER, operator=True, by="ada", why="the day is over")[""] == "Done"
    outcome = stranger.ask("AskOutcome", xid=OTHER)
    assert (outcome["state"], outcome["cause"], outcome["heuristic"]) == ("ROLLED_BACK", "OPERATOR", True)
    [forced] = stranger.ask("ListTransactions", states=["ROLLED_BACK"], forced=True)["transactions"]
    assert (forced["by"], forced["why"]) == ("ada", "the day is over")
    told = stranger.ask("Commit", xid=OTHER)
    assert (told["error"], told["texts"]["by"]) == ("HeuristicallyRolledBack", "ada")
    forget = {"session": session, "serial": 3, "xid": OTHER, "by": "ada", "why": "told"}
    assert stranger.ask("Forget", **forget)[""] == "Done"


def _queues(stranger):
    declared = stranger.ask("DeclareQueue", name="q")
    number, default = declared["partition"], -2  # the exchange without a name, and each must find a queue
    limited = {"delivery_limit": 3, "dead_letter_exchange": None, "dead_letter_key": None}
    assert stranger.ask("DeclareQueue", name="q", settings=limited)["error"] == "DeclaredOtherwise"
    exchange = stranger.ask("DeclareExchange", name="e", settings={"kind": "FANOUT"})["number"]
    binding = {"exchange": "e", "key": "", "destination": "q"}
    assert stranger.ask("Bind", binding=binding)[""] == "Done"
    for place in range(4):
        assert stranger.ask("Send", FRAME, partition=-2 * exchange)["base_offset"] == place
    [told] = stranger.ask("ListExchanges", names=["e"], bindings=True)["exchanges"]
    assert (told["taken"], told["bindings"]) == (4, [binding | {"to_exchange": False, "arguments": []}])
    assert stranger.ask("Unbind", binding=binding)[""] == "Done"
    for address, answer in ((-2 * exchange, "Unroutable"), (-2 * exchange - 1, ""), (default, "Unroutable")):
        assert stranger.ask("Send", FRAME, partition=address).get("error", "") == answer
    taken, data = stranger.read("TakeMessages", partition=number, most=3)
    assert (taken["runs"], taken["attempts"], taken["redelivered"]) == ([(0, 3)], [], [])
    assert [int.from_bytes(data[n * len(FRAME) :][8:16], "big") for n in range(3)] == [0, 1, 2]
    done = {"partition": number, "generation": 0, "base": 0, "finished": b"\x02\x01"}
    failed = {"partition": number, "generation": 0, "base": 0, "retried": [{"offset": 1, "after": 0}]}
    for settled in (done, failed):
        assert (
            stranger.ask("CommitOffsets", group="txbroker.queues", offsets=[], settled=[settled])[""]
            == "Done"
        )
    stranger.say("GiveBack", partition=number, offsets=b"\x02\x01", base=2)
    taken, _ = stranger.read("TakeMessages", partition=number, most=3)
    assert (taken["runs"], taken["attempts"]) == ([(1, 2), (3, 1)], [(1, 1)])
    assert taken["redelivered"] == [(1, 2)]
    positions = [{"group": "txbroker.queues", "id": b"", "offsets": [], "settled": [done | {"base": 1}]}]
    committed = stranger.ask("Commit", serial=103, positions=positions)
    assert committed[""] == "Committed", committed
    stranger.say("GiveBack", partition=number, offsets=b"\x02\x01", base=3)
    lost = done | {"base": 3}
    other = stranger.ask("CommitOffsets", group="txbroker.queues", offsets=[], settled=[lost])
    assert other["error"] == "DeliveryLost"
    [queue] = stranger.ask("ListQueues", names=["q"])["queues"]
    assert (queue["messages"], queue["ready"], queue["unacknowledged"]) == (2, 1, 1)
    assert stranger.ask("PurgeQueue", name="q")["messages"] == 1
    assert stranger.ask("DeleteExchange", name="e", number=exchange)[""] == "Done"
    assert stranger.ask("DeleteQueue", name="q", partition=number)["messages"] == 1


def _consumers(stranger):
    number = stranger.ask("DeclareQueue", name="c")["partition"]
    assert stranger.ask("Consume", partition=number, consumer=1, exclusive=True)[""] == "Done"
    assert stranger.ask("Consume", partition=number, consumer=2)["error"] == "QueueInUse"
    waits = stranger.say("TakeMessages", partition=number, most=1, max_wait=60_000_000, consumer=1)
    ended = stranger.say("StopConsuming", consumer=1)
    assert [stranger.hear()[0]["correlation"] for _ in range(2)] == [waits, ended]
    assert stranger.ask("Consume", partition=number, consumer=2, priority=7)[""] == "Done"
    assert stranger.ask("StopConsuming", consumer=2)[""] == "Done"


def _leases(stranger, port):
    number = stranger.ask("DeclareQueue", name="l")["partition"]
    with amqp.Connection(f"127.0.0.1:{port}") as connection:
        channel, delivered = connection.channel(), []
        channel.basic_publish(amqp.Message(b"leased"), routing_key="l")
        channel.basic_consume("l", callback=delivered.append, arguments={"x-txbroker-lease": True})
        connection.drain_events(timeout=20.0)
        lease = bytes.fromhex(delivered[0].headers["x-txbroker-lease"])
        assert stranger.ask("TakeOver", lease=bytes(16))["error"] == "DeliveryLost"
        taken = stranger.ask("TakeOver", lease=lease)
        assert (taken["partition"], taken["offset"], taken["attempts"], taken["queue"]) == (number, 0, 0, "l")
    done = {"partition": number, "generation": 0, "base": 0, "finished": b"\x02\x01"}
    told = stranger.ask("CommitOffsets", group="txbroker.queues", offsets=[], settled=[done])
    assert told[""] == "Done"
    assert stranger.ask("ListQueues", names=["l"])["queues"][0]["messages"] == 0


def _groups(stranger, number):
    [(claimed, generation)] = stranger.ask("ClaimPartitions", group="g", member="m", partitions=[number])[
        "claims"
    ]
    assert (claimed, generation) == (number, 1)
    position = {"partition": number, "offset": 2, "generation": generation, "metadata": "half way"}
    assert stranger.ask("CommitOffsets", group="g", offsets=[position], expected=[1])[""] == "Done"
    finished = {"partition": number, "generation": generation, "base": 2, "finished": b"\x02\x01"}
    assert stranger.ask("CommitOffsets", group="g", offsets=[], settled=[finished])[""] == "Done"
    position["offset"], position["metadata"] = 3, "half way"
    reader = {"group": "g", "first": 0, "generations": [generation], "missing": [(number, b"\x02\x01", 2)]}
    fetched, data = stranger.read("Fetch", positions=[(number, 3, 3)], readers=[reader])
    [part] = fetched["partitions"]
    assert (part["finished"], part["waiting"], part["next_offset"], len(data)) == (b"\x02\x01", b"", 3, 0)
    listed = stranger.ask("ListParked", group="g", partition=number)
    assert (listed["offsets"], listed["more"]) == ([], False)
    again = {"group": "g", "id": listed["id"], "partition": number, "offsets": [2]}
    assert stranger.ask("ReleaseParked", **again)[""] == "Done"
    rules = {"attempts": 1, "pause": 0, "longest": 0, "ending": "STOP", "target": ""}
    settings = {"retry": rules, "expiry": 86_400_000_000, "tags": []}
    both = {"group": "g", "changed": ["retry", "expiry"]}
    assert stranger.ask("AlterGroup", settings=settings, **both)[""] == "Done"
    more = settings | {"retry": rules | {"attempts": 2}}
    other = stranger.ask("AlterGroup", settings=more, whether="NONE_OR_SAME", **both)
    assert other["error"] == "GroupSettingsConflict"
    assert stranger.ask("DescribeGroup", group="g")["settings"] == settings
    failed = {"partition": number, "generation": generation, "base": 3, "retried": [{"offset": 3}]}
    for _ in range(2):
        assert stranger.ask("CommitOffsets", group="g", offsets=[], settled=[failed])[""] == "Done"
        [waits] = stranger.ask("ListParked", group="g", partition=number)["offsets"]
        assert (waits["offset"], waits["attempts"], waits["stopped"]) == (3, 1, True)
    assert stranger.ask("ReleaseParked", **again | {"offsets": [3]})[""] == "Done"
    known = stranger.ask("FetchOffsets", group="g")
    assert known["offsets"] == [position | {"pending_by": ""}]
    [group] = stranger.ask("ListGroups")["groups"]
    assert group == {"name": "g", "positions": [("t", 0, 3, 1)], "id": known["id"]}
    assert stranger.ask("DeleteGroup", group="g", id=known["id"])[""] == "Done"
    _filter(stranger, number)


def _filter(stranger, number):
    """A group for which none of the four messages is."""
    settings = {"retry": None, "expiry": None, "tags": ["eu"]}
    brought = {"group": "f", "settings": settings, "changed": ["tags"], "whether": "NONE_OR_SAME"}
    assert stranger.ask("AlterGroup", **brought, id=GROUP_ID)[""] == "Done"
    reader = {"group": "f", "first": 0, "generations": [0], "missing": []}
    fetched, data = stranger.read("Fetch", positions=[(number, 0, 0)], readers=[reader])
    [part] = fetched["partitions"]
    assert (part["next_offset"], part["finished"], data) == (4, b"\x02\x0f", b"")
    assert stranger.ask("DeleteGroup", group="f", id=GROUP_ID)[""] == "Done"


def _deliveries(stranger, number):
    """A stream whose one number is delivered, twice."""
    stream = {"stream": b"s" * 16}
    held = stranger.ask("ClaimStream", **stream, table="0123456789abcdef", generation=1)
    assert (held["last"], held["born"]) == (0, held["epoch"])
    delivery = stream | {"epoch": held["epoch"], "number": 5, "after": 0}
    for serial, count in ((101, 1), (102, 0)):
        said = {"serial": serial, "runs": [(number, len(FRAME))], "delivery": delivery}
        committed = stranger.ask("Commit", FRAME, **said)
        assert (committed[""], len(committed["placements"])) == ("Committed", count)
    [known] = stranger.ask("ListStreams")["streams"]
    assert (known["last"], known["client"]) == (5, "a stranger")
    assert stranger.ask("ReleaseStream", **stream, epoch=held["epoch"], last=5, generation=2)[""] == "Done"
    older = stranger.ask("ClaimStream", **stream, table="0123456789abcdef", generation=1)
    assert (older["error"], older["numbers"]) == ("OutboxSetBack", {"generation": 2})


def _members(stranger, number):
    joined = stranger.ask("JoinGroup", group="h", nonce=b"n" * 16, topics=["t"], pattern="u*", start=1)
    who = {"group": "h", "member": joined["member"], "secret": joined["secret"]}
    [mine] = stranger.ask("Attend", **who)["assigned"]
    assert (mine["partition"], mine["topic"], mine["index"]) == (number, "t", 0)
    stranger.say("Attend", **who, owned=[(number, mine["generation"])])
    known = stranger.ask("DescribeGroup", group="h")
    [member], [part] = known["members"], known["partitions"]
    assert (known["kind"], member["client"], member["pattern"]) == ("members", "a stranger", "u*")
    assert (part["position"], part["lag"], part["member"], part["generation"]) == (
        1, 3, joined["member"], mine["generation"],
    )  # fmt: skip
    refused = stranger.ask("ClaimPartitions", group="h", member="m", partitions=[number])
    assert refused["error"] == "GroupKindConflict"
    assert stranger.ask("DeleteGroup", group="h", id=known["id"])["error"] == "GroupInUse"
    begun = {"partition": number, "generation": mine["generation"], "offsets": [(1, 0)]}
    assert stranger.ask("BeginMessages", **who, begun=[begun])[""] == "Done"
    moved = {"partition": number, "offset": 2, "generation": mine["generation"]}
    moving = stranger.say("CommitOffsets", group="h", offsets=[moved], expected=[1], stop=True)
    lost, done = stranger.hear()[0], stranger.hear()[0]
    assert (lost["lost"], done[""], done["correlation"]) == ([number], "Done", moving)
    assert stranger.ask("Attend", **who)["error"] == "UnknownMember"
    who = _joined_again(stranger, number, mine["generation"])
    leaving = stranger.say("LeaveGroup", **who)
    lost, done = stranger.hear()[0], stranger.hear()[0]
    assert (lost["lost"], done[""], done["correlation"]) == ([], "Done", leaving)
    assert stranger.ask("DeleteGroup", group="h", id=known["id"])[""] == "Done"


def _joined_again(stranger, number, held):
    """Join with the generation from before the group was moved; it is worth nothing any more."""
    again = stranger.ask("JoinGroup", group="h", nonce=b"o" * 16, topics=["t"], owned=[(number, held)])
    who = {"group": "h", "member": again["member"], "secret": again["secret"]}
    told = stranger.ask("Attend", **who, owned=[(number, held)])
    while not told["assigned"]:  # that it is lost may be told before it is claimed anew
        told = stranger.ask("Attend", **who)
    [mine] = told["assigned"]
    assert mine["generation"] > held
    assert stranger.ask("FetchOffsets", group="h")["offsets"][0]["offset"] == 2
    stranger.say("Attend", **who)
    assert [each["partition"] for each in stranger.hear()[0]["assigned"]] == [number]
    stranger.say("Attend", **who)
    return who


def _refusals(stranger, number):
    refused = stranger.ask("Send", FRAME, partition=number + 100)
    assert (refused[""], refused["error"]) == ("Refused", "UnknownPartition")
    fetched = stranger.ask("Fetch", positions=[(number, 100, 0)])
    [part] = fetched["partitions"]
    assert (part["error"], part["numbers"]) == ("OffsetOutOfRange", {"start": 0, "end": 4})
