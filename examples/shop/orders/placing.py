"""Placing an order."""

from __future__ import annotations

from django.db import transaction

from examples.shop.orders import rows
from examples.shop.orders.tasks import charge


def place(number: str, customer: str, product: str) -> bool:
    """Place an order: its row and its first task are one. Return False if it was placed before.

    Raises SoldOut, UnknownProduct: then there is neither.
    """
    with transaction.atomic():
        is_new = rows.write_order(number, customer, product)
        if is_new:
            charge.delay(number)  # goes out with COMMIT
            rows.take_from_stock(product)  # raises SoldOut, and nothing goes out
    return is_new
