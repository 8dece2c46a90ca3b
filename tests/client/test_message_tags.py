"""Test that every face of the clients gives a message the tags that are asked for, and hands them out."""

import asyncio

import pytest

import txbroker
from journal.message_headers import ID_HEADER, TAG_HEADER, marked, message_of, message_tags, tags_of
from tests.client.scripted_broker import ScriptedServer
from txbroker import errors
from txbroker.client import asyncio as asyncio_client


@pytest.fixture
def server(broker):
    server = ScriptedServer(broker)
    yield server
    server.close()


def test_the_blocking_client_gives_tags_and_hands_them_out(server):
    with txbroker.connect(server.url, timeout=5.0) as connection:
        connection.send("t", b"0", tags="eu")
        connection.send_async("t", b"1", headers={"h": b"v"}, id="x", tags=["eu", "express", "eu"]).result()
        connection.send("t", b"2", tags=[])
        with connection.transaction() as tx:
            tx.send("t", b"3", tags=("a",))
            tx.send_many("t", [b"4", b"5", b"6"], tags=["b", None, ["c", "d"]])
        connection.tpc_begin(connection.xid(1, "g", "b"))
        connection.send("t", b"7", tags="in two phases")
        connection.tpc_prepare()
        connection.tpc_commit()
        found = list(connection.consume("t", follow=False))
    assert [message.tags for message in found] == [
        ("eu",), ("eu", "express"), (), ("a",), ("b",), (), ("c", "d"), ("in two phases",),
    ]  # fmt: skip
    assert found[1].headers == (
        ("h", b"v"), (TAG_HEADER, b"eu"), (TAG_HEADER, b"express"), (ID_HEADER, b"x"),
    )  # fmt: skip


def test_the_clients_for_loops_give_tags_and_hand_them_out(server):
    async def main():
        async with await asyncio_client.connect(server.url, timeout=5.0) as connection:
            await connection.send("t", b"0", tags="eu")
            async with connection.transaction() as tx:
                await tx.send("t", b"1", tags=["eu", "us"])
                await tx.send_many("t", [b"2"], tags=["three"])
            return [message.tags async for message in connection.consume("t", follow=False)]

    assert asyncio.run(main()) == [("eu",), ("eu", "us"), ("three",)]


def test_a_message_that_is_sent_on_keeps_its_tags_unless_it_gets_others(server):
    with txbroker.connect(server.url, timeout=5.0) as connection:
        connection.send("t", b"0", headers=[("h", b"v")], id="first", tags=["a", "b"])
        (message,) = connection.consume("t", follow=False)
        connection.send("t", b"1", headers=message.headers)
        connection.send("t", b"2", headers=message.headers, tags="c")
        connection.send("t", b"3", headers=message.headers, tags=[], id="second")
        _, same, other, none = connection.consume("t", follow=False)
    assert [each.tags for each in (same, other, none)] == [("a", "b"), ("c",), ()]
    assert (same.headers, none.headers) == (message.headers, (("h", b"v"), (ID_HEADER, b"second")))


def test_tags_are_texts_within_their_bounds():
    assert message_tags("ä") == ("ä",)
    assert message_tags(str(each % 16) for each in range(100)) == tuple(map(str, range(16)))
    assert message_tags(["x" * 255]) == ("x" * 255,)
    for wrong in (5, b"eu", {"eu": 1}.get, [b"eu"], ["eu", None], [["eu"]]):
        with pytest.raises(errors.WrongType, match="nothing was sent"):
            message_tags(wrong)
    with pytest.raises(
        errors.WrongValue, match=r"one of tags is 'ä+', of type str; it must be of 1 to 255 bytes in UTF-8"
    ):
        message_tags(["ä" * 128])
    with pytest.raises(errors.WrongValue, match="one of tags is ''"):
        message_tags("")
    with pytest.raises(
        errors.WrongValue, match="tags has 17 different ones, 16 are allowed; nothing was sent"
    ):
        message_tags(map(str, range(17)))


def test_what_another_client_calls_a_tag_is_shown_though_it_is_no_text():
    assert tags_of(((TAG_HEADER, b"\xff"), ("h", b"v"), (TAG_HEADER, b""))) == ("\udcff", "")


def test_a_message_that_waits_has_its_tags_from_the_call_on():
    tags = ["a"]
    message = message_of("t", b"v", None, {"a": b"1"}, None, None, None, tags)
    tags.append("b")
    assert message == ("t", b"v", None, (("a", b"1"), (TAG_HEADER, b"a")), None, None)
    assert marked(None, None, None) == (None, None)
