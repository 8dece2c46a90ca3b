"""Placing an order."""

from __future__ import annotations

from functools import partial

from django.db import transaction

from examples.shop.naive.tasks import charge
from examples.shop.orders import rows


def place(number: str, customer: str, product: str) -> bool:
    """Place an order, then send its first task. Return False if it was placed before.

    Raises SoldOut, UnknownProduct: then there is neither.
    """
    with transaction.atomic():
        is_new = rows.write_order(number, customer, product)
        if is_new:
            transaction.on_commit(partial(charge.delay, number))
            rows.take_from_stock(product)
    return is_new
