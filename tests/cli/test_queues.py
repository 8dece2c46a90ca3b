"""``txbroker queues`` and ``txbroker exchanges`` against a real broker."""

import json
import re
import signal
from decimal import Decimal
from hashlib import sha256

import pytest

import txbroker
from journal.records.queue_entries import QueueSettings
from tests.cli.invocations import Meanwhile, lines, process
from txbroker.cli.orderly_stop import noted_interrupt
from txbroker.queues.compared_headers import NESTED, compared
from txbroker.queues.kept_arguments import packed
from txbroker.wire.messages import DeclareQueue, QueueDeclared

pytestmark = pytest.mark.slow

HOSTILE = ("\x1b[31mred\n", "\u202eexe.txt", "a\tb", "--yes", "ключ/#?")


@pytest.fixture
def name(request):
    """A name that no other test has."""
    return "q-" + sha256(request.node.nodeid.encode()).hexdigest()[:12]


@pytest.fixture
def queue(connection, name):
    """A queue with two messages."""
    connection.declare_queue(name)
    connection.publish("", name, b"one")
    connection.publish("", name, b"two", headers={"kind": b"new"})
    return name


@pytest.fixture
def taker(url, queue):
    """A session that has the queue's first message."""
    with txbroker.connect(url) as other:
        reader = other.queue(queue)
        message = reader.get(10)
        yield other, message
        reader.close()


async def declared(core, name, settings):
    """Have a queue with settings that only AMQP gives."""
    await core.request(DeclareQueue(core.correlation(), name, settings), QueueDeclared)


def counts(run_json, queue):
    found = run_json("queues", "show", queue)
    return tuple(found[each] for each in ("messages", "ready", "unacknowledged", "held", "later"))


def said(result):
    """What a command has said on stderr, as if nothing were wrapped."""
    return " ".join(result.stderr.split())


class TestLooking:
    def test_queues_are_listed_with_their_messages(self, run, run_json, queue, taker):
        listed = run("queues", "list").stdout.splitlines()
        assert listed[0].split() == [
            "queue", "messages", "ready", "unacked", "held", "oldest", "consumers", "waiting", "bytes",
        ]  # fmt: skip
        [row] = [line.split() for line in listed if line.startswith(queue)]
        assert row[1:5] == ["2", "1", "1", "0"]
        found = run_json("queues", "list")
        [mine] = [each for each in found["queues"] if each["name"] == queue]
        assert not found["is_filtered"]
        assert (mine["messages"], mine["ready"], mine["unacknowledged"], mine["held"]) == (2, 1, 1, 0)
        assert mine["oldest"] < 60e6
        assert mine["bytes"] > 0

    def test_a_queue_is_shown_with_its_settings_and_all_that_leads_to_it(self, run, run_json, name):
        run("queues", "declare", name, "--delivery-limit", "3", "--dead-letter-exchange", "amq.fanout")
        assert "No binding leads to it" in run("queues", "show", name).stdout
        run("exchanges", "declare", f"{name}.by-word", "--kind", "topic")
        run("exchanges", "declare", f"{name}.all", "--kind", "fanout")
        run("queues", "bind", f"{name}.by-word", name, "eu.#")
        run("queues", "bind", f"{name}.all", f"{name}.by-word", "--to-exchange")
        run("queues", "bind", f"{name}.by-word", f"{name}.all", "round", "--to-exchange")
        shown = run("queues", "show", name).stdout
        for part in (
            r"delivery limit +returned at most 3 times",
            r"dead letters +to exchange amq\.fanout",
            rf"{name}\.by-word +eu\.# +queue {name} +–",
            rf'{name}\.all +"" +exchange {name}\.by-word +–',
        ):
            assert re.search(part, shown), shown
        found = run_json("queues", "show", name)
        assert found["settings"] == {
            "delivery_limit": 3, "dead_letter_exchange": "amq.fanout", "dead_letter_key": None, "message_ttl": None,
            "max_length": None, "overflow": "drop-head", "expires": None, "exclusive": False,
            "auto_delete": False, "durable": True, "single_active": False, "max_priority": 0,
            "max_length_bytes": None, "consumer_timeout": None, "dead_letter_strategy": "at-most-once",
            "arguments": None,
        }  # fmt: skip
        assert found["bindings"][0] == {
            "exchange": f"{name}.by-word", "key": "eu.#", "destination": name, "to_exchange": False,
            "arguments": {},
        }  # fmt: skip
        assert [each["destination"] for each in found["bindings"][1:]] == [
            f"{name}.by-word", f"{name}.all",
        ]  # fmt: skip

    @pytest.mark.parametrize(
        "command",
        [
            "queues show nothing",
            "queues delete nothing --yes",
            "queues purge nothing --yes",
            "queues get nothing",
            "queues bind amq.direct nothing",
            "queues unbind amq.direct nothing",
            "queues bind nothing nothing",
            "queues unbind nothing nothing",
            "queues publish nothing key value",
            "exchanges show nothing",
            "exchanges delete nothing --yes",
        ],
    )
    def test_what_is_not_there_is_a_no(self, run, command):
        assert run(*command.split(), code=1).stderr.startswith("Error: ")


class TestDeclaring:
    def test_a_queue_that_is_there_is_left_as_it_is(self, run, run_json, queue):
        assert run("queues", "declare", queue).stdout == (f"Queue {queue} is there. Dead letters: dropped.\n")
        assert counts(run_json, queue)[0] == 2

    def test_one_that_was_declared_otherwise_is_refused(self, run, name):
        made = json.loads(
            run(
                "queues", "declare", name, "--dead-letter-exchange", "", "--dead-letter-key", "dead", "--json"
            ).stdout
        )
        assert made["settings"]["dead_letter_exchange"] == ""
        for more in ((), ("--dead-letter-exchange", ""), ("--delivery-limit", "0")):
            assert "DeclaredOtherwise" in run("queues", "declare", name, *more, code=3).stderr
        run("exchanges", "declare", name)
        run("exchanges", "declare", name, "--kind", "direct")
        for more in (("--kind", "topic"), ("--internal",)):
            assert "DeclaredOtherwise" in run("exchanges", "declare", name, *more, code=3).stderr

    def test_a_queue_says_how_it_ends_what_it_has(self, run, run_json, name, connection):
        given = (
            "--message-ttl",
            "90s",
            "--max-length",
            "5",
            "--overflow",
            "reject-publish",
            "--expires",
            "2h",
        )
        assert run("queues", "declare", name, *given).stdout == (
            f"Queue {name} is there. Time to live: 1m 30s; max length: 5 messages, then further ones are refused; "
            "dead letters: dropped; expires: after 2h without use.\n"
        )
        run("queues", "declare", name, *given)
        settings = run_json("queues", "show", name)["settings"]
        assert (settings["message_ttl"], settings["overflow"]) == (90_000_000, "reject-publish")
        assert re.search(
            r"max length +5 messages, then further ones are refused", run("queues", "show", name).stdout
        )
        run("queues", "publish", "", name, "gone", "--ttl", "0")
        run("queues", "publish", "", name, "stays", "--ttl", "1h")
        assert [each["value"] for each in lines(run("queues", "get", name, "--json"))] == ["stays"]
        for wrong in (
            ("--message-ttl", "5"),
            ("--max-length", "-1"),
            ("--overflow", "x"),
            ("--expires", "0"),
        ):
            run("queues", "declare", name, *wrong, code=2)

    def test_a_queue_says_how_long_its_consumers_may_take(self, run, run_json, name):
        assert run("queues", "declare", name, "--consumer-timeout", "30m").stdout == (
            f"Queue {name} is there. Dead letters: dropped; consumer timeout: 30m to acknowledge a message.\n"
        )
        assert run_json("queues", "show", name)["settings"]["consumer_timeout"] == 1_800_000_000
        run("queues", "declare", name, "--consumer-timeout", "30m")
        for wrong in ("0", "5", "-1s"):
            run("queues", "declare", name, "--consumer-timeout", wrong, code=2)

    def test_a_queue_is_bounded_by_bytes(self, run, run_json, name):
        given = ("--max-length-bytes", "1KiB", "--overflow", "reject-publish")
        assert run("queues", "declare", name, *given).stdout == (
            f"Queue {name} is there. Max bytes: 1.0 KiB of bodies, then further ones are refused; dead letters: "
            "dropped.\n"
        )
        run("queues", "publish", "", name, "x" * 1000, "--header", f"h={'y' * 1000}")
        assert "QueueFull" in run("queues", "publish", "", name, "x" * 25, code=3).stderr
        run("queues", "publish", "", name, "x" * 24)
        found = run_json("queues", "show", name)
        assert (found["settings"]["max_length_bytes"], found["ready_bytes"]) == (1024, 1024)
        assert re.search(r"bytes ready +1.0 KiB", run("queues", "show", name).stdout)
        for wrong in ("-1", "1KB", "x"):
            run("queues", "declare", name, "--max-length-bytes", wrong, code=2)

    def test_a_queue_says_what_becomes_of_dead_letters_that_are_refused(self, run, run_json, name):
        given = ("--dead-letter-exchange", "", "--dead-letter-strategy", "at-least-once")
        assert "nothing would bound it" in run("queues", "declare", name, *given, code=3).stderr
        given = (*given, "--overflow", "reject-publish")
        assert (
            'to exchange "", and kept while there is no room' in run("queues", "declare", name, *given).stdout
        )
        assert run_json("queues", "show", name)["settings"]["dead_letter_strategy"] == "at-least-once"
        run("queues", "declare", name, "--dead-letter-strategy", "often", code=2)

    def test_a_queue_says_its_other_arguments(self, run, run_json, name, connection):
        settings = QueueSettings(arguments=packed({"x-queue-type": "quorum", "x-more": [1, True]}))
        connection.run(declared(connection.core, name, settings))
        assert run_json("queues", "show", name)["settings"]["arguments"] == {
            "x-queue-type": "quorum",
            "x-more": [1, True],
        }
        assert re.search(
            r"arguments +x-queue-type=quorum, x-more=\[1, true\]", run("queues", "show", name).stdout
        )

    def test_a_queue_says_how_it_ends_and_who_consumes_it(self, run, run_json, name, connection):
        given = ("--auto-delete", "--no-durable", "--single-active")
        assert run("queues", "declare", name, *given).stdout == (
            f"Queue {name} is there. Dead letters: dropped; auto-delete: with its last consumer; durable: no, it ends "
            "with the broker's process; single active: one consumer gets all messages until it ends.\n"
        )
        run("queues", "declare", name, *given)
        run("queues", "publish", "", name, "task")
        with connection.queue(name) as queue:
            next(iter(queue))
            found = run_json("queues", "show", name)
            assert (found["consumers"], found["waiting"]) == (1, 0)
            assert [found["settings"][each] for each in ("auto_delete", "durable", "single_active")] == [
                True, False, True,
            ]  # fmt: skip
            assert re.search(r"consumers +1\n", run("queues", "show", name).stdout)
            assert "1 consumer, 0 waiting" in said(
                run("queues", "delete", name, "--if-unused", "--yes", code=3)
            )
        run("queues", "show", name, code=1)

    def test_messages_have_priorities(self, run, name):
        declared = run("queues", "declare", name, "--max-priority", "5").stdout
        assert declared == f"Queue {name} is there. Dead letters: dropped; priorities: 0 to 5.\n"
        run("queues", "publish", "", name, "low", "--priority", "1")
        run("queues", "publish", "", name, "high", "--priority", "4")
        came = [run("queues", "get", name, "--ack").stdout.split()[-1] for _ in range(2)]
        assert came == ["high", "low"]
        for wrong in (
            ("declare", name, "--max-priority", "256"),
            ("publish", "", name, "x", "--priority", "-1"),
        ):
            run("queues", *wrong, code=2)

    def test_an_exchange_says_where_the_rest_goes(self, run, run_json, name):
        run("exchanges", "declare", name, "--alternate", "amq.fanout", "--auto-delete", "--no-durable")
        assert re.search(r"alternate +amq\.fanout", run("exchanges", "show", name).stdout)
        settings = run_json("exchanges", "show", name)["settings"]
        assert settings == {
            "kind": "direct", "internal": False, "auto_delete": True, "alternate": "amq.fanout", "durable": False,
            "delayed": False,
        }  # fmt: skip

    def test_messages_wait_at_a_delayed_exchange_and_are_taken_back(self, run, run_json, name):
        run("exchanges", "declare", name, "--kind", "fanout", "--delayed")
        run("queues", "declare", name)
        run("queues", "bind", name, name)
        for after in ("100", "3600000", "7200000"):
            run("queues", "publish", name, "k", f"after {after}", "--header", f"x-delay={after}")
        assert run("queues", "get", name, "--ack", "--wait", "10s").stdout.endswith("after 100\n")
        found = run_json("exchanges", "show", name)
        assert (found["waiting"], found["settings"]["delayed"]) == (2, True)
        assert re.search(r"waiting +2", run("exchanges", "show", name).stdout)
        first, second = run_json("scheduled", "list", "--exchange", name)["messages"]
        assert (first["exchange"], first["topic"], first["clock"]) == (name, None, "elapsed")
        listed = run("scheduled", "list", "--exchange", name).stdout
        assert [line.split()[0:4:3] for line in listed.splitlines()[2:]] == [
            [first["id"], name],
            [second["id"], name],
        ]
        assert f"exchange {name}" in run("scheduled", "show", first["id"]).stdout
        run("scheduled", "cancel", first["id"])
        asked = run("exchanges", "delete", name, stdin="n\n", code=1).stderr
        assert "with 1 binding, and drop 1 message that waits at it?" in asked
        run("exchanges", "delete", name, "--yes")
        assert run("scheduled", "list", "--exchange", name).stdout == (
            f"No messages are scheduled for exchange {name}.\n"
        )
        run("scheduled", "list", "--exchange", name, "--topic", name, code=2)

    def test_names_and_settings_that_cannot_be_are_refused(self, run):
        for names in ("queues", "exchanges"):
            for wrong in ("amq.mine", "ä" * 128):
                assert "InvalidName" in run(names, "declare", wrong, code=3).stderr
        assert "InvalidName" in run("queues", "declare", "", code=3).stderr
        assert "DeclaredOtherwise" in run("exchanges", "declare", "", "--kind", "fanout", code=3).stderr
        run("queues", "declare", "q", "--delivery-limit", "-1", code=2)
        run("exchanges", "declare", "x", "--kind", "round", code=2)


class TestDeleting:
    def test_it_asks_and_a_no_changes_nothing(self, run, run_json, queue):
        asked = run("queues", "delete", queue, stdin="n\n", code=1)
        assert f"Delete queue {queue} with 2 messages?" in asked.stderr
        run("queues", "delete", queue, stdin="", code=2)
        assert "Drop 2 messages" in run("queues", "purge", queue, stdin="n\n", code=1).stderr
        assert counts(run_json, queue)[0] == 2
        assert (
            run("queues", "delete", queue, stdin="y\n").stdout == f"Deleted queue {queue} with 2 messages.\n"
        )
        run("queues", "show", queue, code=1)

    def test_a_condition_that_does_not_hold_keeps_it(self, run, run_json, queue, taker):
        assert "has 2 messages" in said(run("queues", "delete", queue, "--if-empty", "--yes", code=3))
        assert "is used" in said(run("queues", "delete", queue, "--if-unused", "--yes", code=3))
        assert run_json("queues", "delete", queue, "--yes") == {"deleted": queue, "messages": 2}

    def test_a_queue_that_a_prepared_transaction_needs_stays(self, run, run_json, queue, taker):
        other, message = taker
        xid = other.xid(7, queue, "broker")
        transaction = other.transaction(xid)
        transaction.ack(message)
        transaction.publish("", queue, b"three")
        transaction.prepare()
        assert counts(run_json, queue) == (2, 1, 0, 1, 0)
        refused = said(run("queues", "delete", queue, "--yes", code=3))
        assert "QueueInUse" in refused
        assert f"xid 7:{queue}:broker" in refused
        assert run_json("queues", "purge", queue, "--yes") == {"purged": queue, "messages": 1}
        run("transactions", "commit", str(xid), "--why", "test", "--yes")
        assert counts(run_json, queue) == (1, 1, 0, 0, 0)
        run("queues", "delete", queue, "--yes")

    def test_the_queue_that_was_shown_is_deleted_and_not_one_made_anew_while_it_was_asked(
        self, run, run_json, queue, connection
    ):
        def meanwhile():
            connection.delete_queue(queue)
            connection.declare_queue(queue)

        failed = run("queues", "delete", queue, stdin=Meanwhile(b"y\n", meanwhile), code=1, partly=True)
        assert "another one of that name was made" in said(failed)
        assert counts(run_json, queue)[0] == 0

    def test_purging_drops_what_nobody_has(self, run, run_json, queue, taker):
        assert run("queues", "purge", queue, stdin="y\n").stdout == f"Dropped 1 message of queue {queue}.\n"
        assert counts(run_json, queue) == (1, 0, 1, 0, 0)

    def test_an_exchange_goes_with_its_bindings_and_those_of_the_broker_stay(self, run, run_json, queue):
        run("exchanges", "declare", queue, "--kind", "fanout")
        run("queues", "bind", queue, queue)
        assert "QueueInUse" in run("exchanges", "delete", queue, "--if-unused", "--yes", code=3).stderr
        assert "with 1 binding?" in run("exchanges", "delete", queue, stdin="n\n", code=1).stderr
        assert run("exchanges", "delete", queue, stdin="y\n").stdout == f"Deleted exchange {queue}.\n"
        assert run_json("queues", "show", queue)["bindings"] == []
        for own in ("", "amq.topic"):
            assert "always there" in said(run("exchanges", "delete", own, "--yes", code=3))

    def test_the_exchange_that_was_shown_is_deleted_and_not_one_made_anew(self, run, name, connection):
        def meanwhile():
            connection.delete_exchange(name)
            connection.declare_exchange(name)

        connection.declare_exchange(name)
        failed = run("exchanges", "delete", name, stdin=Meanwhile(b"y\n", meanwhile), code=1, partly=True)
        assert "another one of that name was made" in said(failed)
        run("exchanges", "show", name)


class TestExchanges:
    def test_they_are_listed_with_what_went_through_them(self, run, run_json, queue):
        listed = run("exchanges", "list").stdout.splitlines()
        assert listed[0].split() == ["exchange", "kind", "published", "waiting", "bindings", "internal"]
        assert listed[2].split()[:2] == ['""', "direct"]
        found = {each["name"]: each for each in run_json("exchanges", "list")["exchanges"]}
        assert found[""]["number"] == 1
        assert found[""]["published"] >= 2
        assert found["amq.topic"]["settings"] == {
            "kind": "topic", "internal": False, "auto_delete": False, "alternate": None, "durable": True,
            "delayed": False,
        }  # fmt: skip

    def test_one_is_shown_with_its_bindings(self, run, run_json, queue):
        run("exchanges", "declare", queue, "--kind", "headers", "--internal")
        run("queues", "bind", queue, queue, "--argument", "kind=new", "--argument", "region")
        shown = run("exchanges", "show", queue).stdout
        assert re.search(r"internal +yes", shown)
        assert shown.splitlines()[-1].endswith(f"queue {queue}   kind=new, region")
        [binding] = run_json("exchanges", "show", queue)["bindings"]
        assert binding["arguments"] == {"kind": "new", "region": None}
        assert "the queue whose name is the message's key" in run("exchanges", "show", "").stdout


class TestBindings:
    def test_messages_go_where_bindings_lead_and_no_more_once_they_are_gone(self, run, queue):
        assert run("queues", "bind", "amq.topic", queue, f"{queue}.*").stdout == (
            f"Bound: from exchange amq.topic to queue {queue}, with key {queue}.*.\n"
        )
        run("queues", "bind", "amq.topic", queue, f"{queue}.*")
        assert run("queues", "publish", "amq.topic", f"{queue}.x", "hello").stdout == (
            f"Sent 1 message through exchange amq.topic with key {queue}.x, forced.\n"
        )
        assert [each["value"] for each in lines(run("queues", "get", queue, "--count", "3", "--json"))] == [
            "one", "two", "hello",
        ]  # fmt: skip
        run("queues", "unbind", "amq.topic", queue, f"{queue}.*")
        assert "Unroutable" in run("queues", "publish", "amq.topic", f"{queue}.x", "hello", code=3).stderr
        told = said(run("queues", "unbind", "amq.topic", queue, f"{queue}.*", code=1))
        assert (
            f"there is no such binding from exchange amq.topic to queue {queue}, with key {queue}.*" in told
        )

    def test_one_is_ended_as_it_is_shown_whatever_its_values_are(self, run, run_json, queue, connection):
        arguments = {"size": 5, "exact": True, "share": 0.5, "any": None, "kind": "new", "raw": b"\xff"}
        connection.bind("amq.headers", queue, arguments=arguments)
        shown = "any, exact=true, kind=new, raw=0xff, share=0.5, size=5"
        assert run("queues", "show", queue).stdout.splitlines()[-1].endswith(shown)
        [binding] = run_json("queues", "show", queue)["bindings"]
        assert binding["arguments"] == arguments | {"raw": {"base64": "/w=="}}
        words = [word for each in shown.split(", ") for word in ("--argument", each)]
        run("queues", "unbind", "amq.headers", queue, *words[2:], code=1)
        words[words.index("raw=0xff")] = (
            "raw=\udcff"  # as Python gives a byte of a command line that is not UTF-8
        )
        assert run("queues", "unbind", "amq.headers", queue, *words).stdout == (
            f"Unbound: from exchange amq.headers to queue {queue}, with arguments {shown}.\n"
        )
        assert run_json("queues", "show", queue)["bindings"] == []

    def test_what_clients_of_amqp_have_given_is_shown_as_they_gave_it(self, run, run_json, queue, connection):
        given = {"table": {"n": [1, None, "é"]}, "price": Decimal("1.50"), "none": []}
        arguments = {name: compared(value) for name, value in given.items()} | {"raw": NESTED + b"?"}
        connection.bind("amq.headers", queue, arguments=arguments)
        shown = f'none=[], price=1.50, raw=0x{(NESTED + b"?").hex()}, table={{"n": [1, null, "é"]}}'
        assert run("queues", "show", queue).stdout.splitlines()[-1].endswith(shown)
        [binding] = run_json("queues", "show", queue)["bindings"]
        del binding["arguments"]["raw"]
        assert binding["arguments"] == given | {"price": "1.50"}
        connection.unbind("amq.headers", queue, arguments=arguments)

    def test_what_cannot_be_bound_is_refused(self, run, queue):
        assert "the default exchange" in said(run("queues", "bind", "", queue, code=3))
        wrong = run("queues", "bind", "amq.headers", queue, "--argument", "x-match=some", code=3)
        assert "x-match" in wrong.stderr
        run("queues", "bind", "amq.headers", queue, "--argument", "=x", code=2)
        run("queues", "bind", "amq.headers", queue, "--argument", "a=1", "--argument", "a=2", code=2)


class TestMessages:
    def test_what_is_looked_at_is_given_back_uncounted(self, run, run_json, queue):
        looked = run("queues", "get", queue)
        assert re.fullmatch(rf"{queue} 0  \S+Z  appended=\S+Z  key={queue}  one\n", looked.stdout), (
            looked.stdout
        )
        assert looked.stderr == "Gave back 1 message; --ack takes them out of the queue.\n"
        found = lines(run("queues", "get", queue, "--count", "9", "--wait", "300ms", "--json"))
        assert [(each["offset"], each["attempts"], each["redelivered"]) for each in found] == [
            (0, 0, True), (1, 0, False),
        ]  # fmt: skip
        assert found[1]["queue"] == queue
        assert found[1]["headers"] == [["kind", "new"]]
        assert counts(run_json, queue) == (2, 2, 0, 0, 0)
        assert "  redelivered  key=" in run("queues", "get", queue).stdout

    def test_what_is_acknowledged_is_gone(self, run, run_json, queue, connection):
        with connection.queue(queue) as reader:
            reader.nack(reader.get(10))
        taken = run("queues", "get", queue, "--ack")
        assert "  attempts=1  redelivered  key=" in taken.stdout
        assert taken.stderr == ""
        assert [each["value"] for each in lines(run("queues", "get", queue, "--ack", "--json"))] == ["two"]
        none = run("queues", "get", queue, "--ack", "--wait", "10ms", code=1)
        assert said(none) == f"Error: queue '{queue}' has no message that can be got now"
        run("queues", "get", queue, "--wait", "0s", code=2)

    def test_it_waits_for_a_message(self, url, queue, connection):
        with process("queues", "get", queue, "--count", "3", "--ack", "--wait", "30s", url=url) as getting:
            assert [getting.stdout.readline().split()[-1] for _ in range(2)] == [b"one", b"two"]
            connection.publish("", queue, b"three")
            assert getting.stdout.readline().split()[-1] == b"three"
            assert getting.wait(30) == 0

    def test_an_interrupt_gives_back_uncounted_wherever_it_comes(self, url, queue, connection):
        with process("queues", "get", queue, "--count", "9", "--wait", "30s", url=url) as getting:
            getting.stdout.readline()
            getting.send_signal(signal.SIGINT)
            assert getting.wait(30) == 130
            assert b"Gave back" in getting.stderr.read()
        with connection.queue(queue) as reader:
            message = reader.get(10)
            assert (message.value, message.attempts, message.redelivered) == (b"one", 0, True)

    def test_a_second_interrupt_does_not_wait(self):
        with noted_interrupt() as is_interrupted:
            assert not is_interrupted()
            signal.raise_signal(signal.SIGINT)
            assert is_interrupted()
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)

    def test_messages_come_from_arguments_files_and_lines(self, run, name, tmp_path, connection):
        connection.declare_queue(name)
        (tmp_path / "letter").write_bytes(b"from\na file")
        assert run("queues", "publish", "", name, "a", "b", "--header", "kind=x").stdout == (
            f"Sent 2 messages to queue {name}, forced.\n"
        )
        run("queues", "publish", "", name, "--file", str(tmp_path / "letter"))
        run("queues", "publish", "", name, stdin="l1\nl2\n")
        run("queues", "publish", "", name, "v", "--file", str(tmp_path / "letter"), code=2)
        [receipt] = lines(run("queues", "publish", "", name, "c", "--new-ids", "--tag", "eu", "--json"))
        assert (receipt["exchange"], receipt["key"], receipt["durability"]) == ("", name, "forced")
        found = lines(run("queues", "get", name, "--count", "6", "--ack", "--json"))
        assert [each["value"] for each in found] == ["a", "b", "from\na file", "l1", "l2", "c"]
        assert found[0]["headers"] == [["kind", "x"]]
        assert (found[5]["id"], found[5]["tags"]) == (receipt["id"], ["eu"])

    def test_what_finds_no_queue_is_refused_or_dropped(self, run, name):
        refused = said(run("queues", "publish", "", name, "a", code=3))
        assert "Unroutable" in refused
        assert "(0 messages had been acknowledged before that)" in refused
        assert run("queues", "publish", "", name, "a", "--no-mandatory").stdout == (
            f"Sent 1 message to queue {name}, forced. What found no queue was dropped.\n"
        )
        run("exchanges", "declare", name, "--internal")
        assert "is internal" in said(run("queues", "publish", name, "k", "a", code=3))


@pytest.mark.parametrize("hostile", HOSTILE, ids=ascii)
def test_a_hostile_name_works_and_does_not_reach_the_terminal_as_it_is(run, hostile):
    commands = [
        ("queues", "declare", "--", hostile),
        ("exchanges", "declare", "--kind", "topic", "--", hostile),
        ("queues", "bind", "--argument", f"{hostile}={hostile}", "--", hostile, hostile, hostile),
        ("queues", "publish", "--header", f"{hostile}={hostile}", "--", hostile, hostile, hostile),
        ("queues", "publish", "--", "", hostile, hostile),
        ("queues", "list"),
        ("queues", "show", "--", hostile),
        ("queues", "get", "--count", "2", "--", hostile),
        ("exchanges", "list"),
        ("exchanges", "show", "--", hostile),
        ("queues", "unbind", "--argument", f"{hostile}={hostile}", "--", hostile, hostile, hostile),
        ("queues", "purge", "--", hostile),
        ("queues", "delete", "--", hostile),
        ("exchanges", "delete", "--", hostile),
    ]
    for command in commands:
        done = run(*command, stdin="y\n" if command[1] in ("purge", "delete") else None)
        printed = (done.stdout + done.stderr).replace("\n", "")
        assert printed.isprintable(), (command, printed)
        if command[1] != "get":
            assert len(done.stdout.splitlines()) == 1 or command[1] in ("list", "show")
    missing = run("queues", "show", "--", hostile, code=1).stderr
    assert missing.replace("\n", "").isprintable()


def test_a_hostile_name_is_told_in_json_as_it_is(run, run_json, connection):
    connection.declare_queue(HOSTILE[0])
    connection.publish("", HOSTILE[0], b"x")
    assert HOSTILE[0] in [each["name"] for each in run_json("queues", "list")["queues"]]
    [taken] = lines(run("queues", "get", HOSTILE[0], "--json", "--ack"))
    assert (taken["queue"], taken["key"]) == (HOSTILE[0], HOSTILE[0])
    connection.delete_queue(HOSTILE[0])


def test_a_name_that_is_not_utf_8_is_refused(run):
    for command in (("queues", "show"), ("queues", "declare"), ("exchanges", "show"), ("queues", "get")):
        assert "WrongValue" in run(*command, "\udcff", code=3).stderr
    assert "WrongValue" in run("queues", "publish", "", "\udcff", "x", code=3).stderr
