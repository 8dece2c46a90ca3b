"""The tasks of an order: ``charge``, then ``ship``, then ``ask``; and ``suggest``, a plain one.

The row of each task, the task that follows, and the acknowledgement of this one are committed together: each happens
once, whatever is killed, and when.
"""

from __future__ import annotations

from examples.shop.celery import app
from examples.shop.orders import rows
from txbroker.celery import TransactionalTask


@app.task(base=TransactionalTask)
def charge(number: str) -> None:
    """Take the money."""
    rows.take_payment(number)
    ship.delay(number)


@app.task(base=TransactionalTask)
def ship(number: str) -> None:
    """Send the parcel."""
    rows.send_parcel(number)
    ask.apply_async((number,), countdown=rows.LETTER_AFTER)
    suggest.delay(number)


@app.task(base=TransactionalTask)
def ask(number: str) -> None:
    """Write a letter."""
    rows.write_letter(number)


@app.task
def suggest(number: str) -> None:
    """Make a suggestion: a plain task, sent with the transaction as the others are, but lost with its worker."""
    rows.make_suggestion(number)
