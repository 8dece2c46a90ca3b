"""Test that every face of the clients gives a message the id that is asked for, and hands it out."""

import asyncio

import pytest

import txbroker
from journal.message_headers import ID_HEADER, marked, message_id, message_of
from tests.client.scripted_broker import ScriptedServer
from txbroker import errors
from txbroker.client import asyncio as asyncio_client


@pytest.fixture
def server(broker):
    server = ScriptedServer(broker)
    yield server
    server.close()


def test_the_blocking_client_gives_ids_and_hands_them_out(server):
    with txbroker.connect(server.url, timeout=5.0) as connection:
        receipts = [
            connection.send("t", b"0", id="order-1"),
            connection.send_async("t", b"1", headers={"h": b"v"}, id=True).result(),
            connection.send("t", b"2", id=False),
        ]
        with connection.transaction() as tx:
            receipts.append(tx.send("t", b"3", id=b"\xff"))
            tx.send_many("t", [b"4", b"5"], ids=["five", None])
            tx.send_many("t", [b"6", b"7"], ids=True)
        connection.tpc_begin(connection.xid(1, "g", "b"))
        receipts.append(connection.send("t", b"8", id="in two phases"))
        connection.tpc_prepare()
        connection.tpc_commit()
        found = list(connection.consume("t", follow=False))
    ids = [message.id for message in found]
    assert [ids[place] for place in (0, 2, 3, 4, 5, 8)] == [
        b"order-1",
        None,
        b"\xff",
        b"five",
        None,
        b"in two phases",
    ]
    assert [receipt.id for receipt in receipts] == [*ids[:4], ids[8]]
    assert len({ids[1], ids[6], ids[7]}) == 3
    assert all(len(ids[place]) == 32 and int(ids[place], 16) for place in (1, 6, 7))
    assert found[1].headers == (("h", b"v"), (ID_HEADER, ids[1]))


def test_the_clients_for_loops_give_ids_and_hand_them_out(server):
    async def main():
        async with await asyncio_client.connect(server.url, timeout=5.0) as connection:
            receipts = [
                await connection.send("t", b"0", id="order-1"),
                await connection.send("t", b"1", id=True),
            ]
            async with connection.transaction() as tx:
                receipts.append(await tx.send("t", b"2", id=True))
                await tx.send_many("t", [b"3"], ids=["three"])
            return receipts, [message.id async for message in connection.consume("t", follow=False)]

    receipts, ids = asyncio.run(main())
    assert (ids[0], ids[3]) == (b"order-1", b"three")
    assert [receipt.id for receipt in receipts] == ids[:3]
    assert len(set(ids)) == 4


def test_a_message_that_is_sent_on_keeps_its_id_unless_it_gets_another(server):
    with txbroker.connect(server.url, timeout=5.0) as connection:
        connection.send("t", b"0", headers=[("h", b"v")], id="first")
        (message,) = connection.consume("t", follow=False)
        connection.send("t", b"1", headers=message.headers)
        connection.send("t", b"2", headers=message.headers, id="second")
        _, same, other = connection.consume("t", follow=False)
    assert (same.id, other.id) == (b"first", b"second")
    assert other.headers == (("h", b"v"), (ID_HEADER, b"second"))


def test_an_id_is_text_or_bytes_within_its_bound():
    assert (message_id("ä"), message_id(bytearray(b"x")), message_id("x" * 255)) == (
        "ä".encode(),
        b"x",
        b"x" * 255,
    )
    assert (message_id(None), message_id(False)) == (None, None)
    with pytest.raises(errors.WrongType, match="id is of type int; it must be a str, bytes"):
        message_id(1)
    with pytest.raises(
        errors.WrongValue, match=r"id is 'ä+', of type str; it must be of 1 to 255 bytes; nothing was sent"
    ):
        message_id("ä" * 128)


def test_an_id_goes_behind_the_headers_of_the_caller_who_is_refused_an_iterator():
    assert marked({"a": b"1"}, b"x", None) == ((("a", b"1"), (ID_HEADER, b"x")), b"x")
    with pytest.raises(errors.WrongType, match="headers is an iterator"):
        marked(iter([("a", b"1")]), b"x", None)


def test_a_message_that_waits_has_its_id_from_the_call_on():
    message = message_of("t", b"v", None, {"a": b"1"}, None, None, "x")
    assert message == ("t", b"v", None, (("a", b"1"), (ID_HEADER, b"x")), None, None)
