"""Test databases that are set back to a copy: what is refused, and what a person may say of their rows."""

import contextlib
import secrets

import pytest

import txbroker
from tests.databases.orders import numbers
from tests.databases.outbox.left_rows import (
    identity_text,
    leave,
    outbox_table,
    packed,
    set_generation,
    stream,
)
from tests.databases.outbox.scene import all_of, rows_of, send, streams_of
from tests.support.waiting import eventually
from txbroker import errors
from txbroker.databases.outbox import claims, restored
from txbroker.databases.tables.resolver_connection import ResolverConnection

pytestmark = pytest.mark.slow


def set_back(opens, shared_broker, topic):
    """Have one block delivered, deleted and its stream released; then set the database back to before that.

    Returns the name of the stream.
    """
    before = identity_text(opens)
    with (
        txbroker.connect(shared_broker.address, timeout=30.0) as own,
        contextlib.closing(opens()) as database,
    ):
        tx = send(database, own, topic, 1)
    assert rows_of(opens) == []
    name = tx.xid.global_id.split(b"-")[1].decode()
    leave(opens, own, name, 1, packed(topic, b"1"))
    set_generation(opens, before)
    return name


def generation(opens):
    return int(identity_text(opens).split()[2])


class TestRefusal:
    def test_a_resolver_delivers_nothing_and_names_the_command(
        self, open_database, shared_broker, broker, topic
    ):
        name = set_back(open_database, shared_broker, topic)
        with (
            txbroker.Resolver(open_database, broker) as resolver,
            pytest.raises(
                errors.OutboxSetBack, match=r"'txbroker resolve .* --adopt restored --drop'"
            ) as caught,
        ):
            resolver.resolve()
        assert caught.value.generation == 1
        assert "outbox has generation 0, and the broker has been told 1" in str(caught.value)
        assert (all_of(broker, topic), rows_of(open_database)) == ([1], [(name, 1)])

    def test_programs_go_on_and_their_status_says_it(
        self, open_database, database, shared_broker, broker, topic
    ):
        set_back(open_database, shared_broker, topic)
        send(database, broker, topic, 2)
        assert sorted(numbers(open_database)) == [1, 2]
        eventually(lambda: "--adopt restored" in broker.resolver.status.failure)
        assert broker.resolver.status.undelivered == 1
        with outbox_table(open_database) as table:
            restored.adopt(table, broker, restored.look(table, broker), drop=False)
        eventually(lambda: sorted(all_of(broker, topic)) == [1, 1, 2] or not broker.resolver.hurry())
        eventually(lambda: broker.resolver.status.failure == "")


class TestAdoption:
    def test_what_the_broker_does_not_know_is_doubtful(self, open_database, shared_broker, broker, topic):
        name = set_back(open_database, shared_broker, topic)
        leave(open_database, broker, stream(7), 5, packed(topic, b"5", at=1_700_000_000_000_000))
        leave(open_database, broker, stream(7), 9, packed(topic, b"9"))
        with outbox_table(open_database) as table:
            found = restored.look(table, broker)
            assert found.doubtful == {name: 1, stream(7): 9}
            assert (found.known, found.generation, found.rows) == (1, 2, 3)
            assert found.oldest == 1_700_000_000_000_000
            assert found.newest > found.oldest
            assert restored.look(table, broker) == found

    def test_doubtful_rows_are_deleted_and_others_delivered(
        self, open_database, shared_broker, broker, topic
    ):
        known = secrets.token_hex(16)
        with outbox_table(open_database) as table:
            held = claims.claim(table.connection, broker, bytes.fromhex(known), 5.0)
        assert held.last == 0
        name = set_back(open_database, shared_broker, topic)
        leave(open_database, broker, known, 3, packed(topic, b"3"))
        with outbox_table(open_database) as table:
            found = restored.look(table, broker)
            assert found.doubtful == {name: 1}
            restored.adopt(table, broker, found, drop=True)
            assert restored.look(table, broker) is None
        assert rows_of(open_database) == [(known, 3)]
        assert generation(open_database) == 2
        with txbroker.Resolver(open_database, broker) as resolver:
            assert resolver.resolve().outbox.delivered == 1
        assert (all_of(broker, topic), rows_of(open_database)) == ([1, 3], [])

    def test_rows_that_a_known_stream_has_delivered_are_deleted_too(
        self, open_database, database, shared_broker, broker, topic
    ):
        tx = send(database, broker, topic, 8, wait="commit")
        mine = tx.xid.global_id.split(b"-")[1].decode()
        eventually(lambda: not rows_of(open_database))
        broker.resolver.stop(0.0)
        set_back(open_database, shared_broker, topic)
        leave(open_database, broker, mine, 1, packed(topic, b"8"))
        with outbox_table(open_database) as table:
            found = restored.look(table, broker)
            assert found.delivered == {mine: 1}
            restored.adopt(table, broker, found, drop=True)
        assert rows_of(open_database) == []

    def test_doubtful_rows_are_delivered_if_that_is_said(self, open_database, shared_broker, broker, topic):
        set_back(open_database, shared_broker, topic)
        with outbox_table(open_database) as table:
            restored.adopt(table, broker, restored.look(table, broker), drop=False)
        with txbroker.Resolver(open_database, broker) as resolver:
            assert resolver.resolve().outbox.delivered == 1
        assert (all_of(broker, topic), rows_of(open_database)) == ([1, 1], [])

    def test_a_database_that_was_not_set_back_is_left_as_it_is(self, open_database, broker, topic):
        leave(open_database, broker, stream(1), 1, packed(topic, b"1"))
        before, known = identity_text(open_database), streams_of(broker)
        with outbox_table(open_database) as table:
            assert restored.look(table, broker) is None
        assert (identity_text(open_database), streams_of(broker)) == (before, known)
        assert rows_of(open_database) == [(stream(1), 1)]

    def test_of_two_that_adopt_at_once_one_does(self, open_database, shared_broker, broker, topic):
        set_back(open_database, shared_broker, topic)
        with outbox_table(open_database) as one, outbox_table(open_database) as other:
            found, again = restored.look(one, broker), restored.look(other, broker)
            restored.adopt(one, broker, found, drop=False)
            with pytest.raises(errors.Misuse, match="nothing was changed"):
                restored.adopt(other, broker, again, drop=True)
        assert len(rows_of(open_database)) == 1
        assert generation(open_database) == 2


class TestGenerations:
    def test_a_claim_whose_generation_was_raised_meanwhile_is_made_again(
        self, open_database, shared_broker, broker, topic
    ):
        class Overtaken(ResolverConnection):
            """Another program releases a stream after the first look."""

            was_overtaken = False

            def generation(self, patience):
                found = super().generation(patience)
                if not self.was_overtaken:
                    self.was_overtaken = True
                    with (
                        txbroker.connect(shared_broker.address, timeout=30.0) as own,
                        contextlib.closing(open_database()) as database,
                    ):
                        send(database, own, topic, 1)
                return found

        connection = Overtaken(open_database)
        held = claims.claim(connection, broker, secrets.token_bytes(16), 5.0)
        assert (connection.was_overtaken, held.last) == (True, 0)
        connection.close()

    def test_a_release_whose_generation_was_raised_meanwhile_is_made_again(
        self, open_database, shared_broker, broker, topic
    ):
        name = secrets.token_bytes(16)
        with outbox_table(open_database) as table:
            held = claims.claim(table.connection, broker, name, 5.0)
            with (
                txbroker.connect(shared_broker.address, timeout=30.0) as own,
                contextlib.closing(open_database()) as database,
            ):
                send(database, own, topic, 1)
            assert claims.release(table.connection, broker, name, held.epoch, 0, 0, 5.0) == 1
        assert name.hex() not in streams_of(broker)

    def test_a_release_is_refused_if_the_database_was_set_back(
        self, open_database, shared_broker, broker, topic
    ):
        name = secrets.token_bytes(16)
        with outbox_table(open_database) as table:
            held = claims.claim(table.connection, broker, name, 5.0)
            set_back(open_database, shared_broker, topic)
            with pytest.raises(errors.OutboxSetBack, match="--adopt restored"):
                claims.release(table.connection, broker, name, held.epoch, 0, 0, 5.0)


def test_rows_come_in_their_order_after_an_adoption(open_database, shared_broker, broker, topic):
    set_back(open_database, shared_broker, topic)
    name = secrets.token_hex(16)
    for number in range(2, 6):
        leave(open_database, broker, name, number, packed(topic, b"%d" % number))
    with outbox_table(open_database) as table:
        restored.adopt(table, broker, restored.look(table, broker), drop=False)
    with txbroker.Resolver(open_database, broker) as resolver:
        resolver.resolve()
    found = all_of(broker, topic)
    assert [number for number in found if number > 1] == [2, 3, 4, 5]
    assert sorted(found) == [1, 1, 2, 3, 4, 5]


def test_a_copy_that_lives_on_beside_its_original_delivers_none_of_its_rows(open_database, broker, topic):
    name = secrets.token_hex(16)
    leave(open_database, broker, name, 3, packed(topic, b"3"))
    with contextlib.closing(open_database()) as database:
        txbroker.create_decision_table(database, adopt="separate")
    assert rows_of(open_database) == []
    assert rows_of(open_database, "txbroker_outbox_refused") == [(name, 3)]
    with txbroker.Resolver(open_database, broker) as resolver:
        assert resolver.resolve().is_quiet
    with outbox_table(open_database) as table:
        assert table.refused_row(name, 3).error.startswith("copied: ")


def test_a_copy_that_takes_the_place_of_its_original_delivers_its_rows(open_database, broker, topic):
    leave(open_database, broker, secrets.token_hex(16), 3, packed(topic, b"3"))
    with contextlib.closing(open_database()) as database:
        txbroker.create_decision_table(database, adopt="replacement")
    with txbroker.Resolver(open_database, broker) as resolver:
        assert resolver.resolve().outbox.delivered == 1
