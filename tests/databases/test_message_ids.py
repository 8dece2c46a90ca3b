"""Test that everything that sends takes an id for the message."""

import inspect

import pytest

import txbroker
from journal.embedded import EmbeddedTransaction, Log
from txbroker.client import asyncio as asyncio_client
from txbroker.client import blocking
from txbroker.client import twisted as twisted_client
from txbroker.coordinator.joined_transaction import Messages as JoinedMessages
from txbroker.databases.asyncio import AsyncAtomic
from txbroker.databases.django.transaction_messages import send as django_send
from txbroker.databases.sqlalchemy.session_messages import Messages as SessionMessages
from txbroker.databases.twisted import ThreadTransaction

APIS = (blocking, asyncio_client, twisted_client)
SENDS = [
    *(api.Connection.send for api in APIS),
    *(api.Connection.send_async for api in APIS),
    *(api.Transaction.send for api in APIS),
    *(
        each.send
        for each in (txbroker.Atomic, AsyncAtomic, ThreadTransaction, JoinedMessages, SessionMessages)
    ),
    django_send,
    Log.append,
    EmbeddedTransaction.append,
]


@pytest.mark.parametrize("send", SENDS, ids=lambda send: f"{send.__module__}.{send.__qualname__}")
def test_whatever_sends_takes_an_id(send):
    assert inspect.signature(send).parameters["id"].default is None
