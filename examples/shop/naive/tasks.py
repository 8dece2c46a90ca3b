"""The tasks of an order: acknowledged when they are done, given again if their process dies, and tried again if they
fail, for example because PostgreSQL is away.
"""

from __future__ import annotations

from functools import partial

from django.db import transaction

from examples.shop.naive.celery import app
from examples.shop.orders import rows

task = partial(
    app.task,
    acks_late=True,
    reject_on_worker_lost=True,
    autoretry_for=(Exception,),
    default_retry_delay=1,
    max_retries=None,
)


@task
def charge(number: str) -> None:
    """Take the money."""
    with transaction.atomic():
        rows.take_payment(number)
        transaction.on_commit(partial(ship.delay, number))


@task
def ship(number: str) -> None:
    """Send the parcel."""
    with transaction.atomic():
        rows.send_parcel(number)
        transaction.on_commit(partial(ask.apply_async, (number,), countdown=rows.LETTER_AFTER))
        transaction.on_commit(partial(suggest.delay, number))


@task
def ask(number: str) -> None:
    """Write a letter."""
    rows.write_letter(number)


@app.task
def suggest(number: str) -> None:
    """Make a suggestion."""
    rows.make_suggestion(number)
