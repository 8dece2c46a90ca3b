"""What the tasks write. Not one of these functions knows who calls it, and in which transaction."""

from __future__ import annotations

from typing import Any

from django.db.models import F

from examples.shop.orders.models import Charge, Customer, Letter, Order, Parcel, Product, Suggestion

LETTER_AFTER = 1
"""Seconds from the parcel to the letter: days, in a shop that is no example."""


class UnknownProduct(Exception):
    """There is no such product."""


class SoldOut(Exception):
    """There is none left of a product."""


def write_order(number: str, customer: str, product: str) -> bool:
    """Write the row of an order; return False if it is there already. Raises UnknownProduct."""
    wanted: Any = Product.objects.filter(name=product).first()
    if wanted is None:
        raise UnknownProduct(product)
    terms = {"customer": customer, "product": product, "cents": wanted.cents}
    _, is_new = Order.objects.get_or_create(number=number, defaults=terms)
    return bool(is_new)


def take_from_stock(product: str) -> None:
    """Take one from stock; raises SoldOut."""
    if not Product.objects.filter(name=product, stock__gt=0).update(stock=F("stock") - 1):
        raise SoldOut(product)


def take_payment(number: str) -> None:
    """Charge the customer."""
    order = Order.objects.get(number=number)
    Charge.objects.create(order=number, customer=order.customer, cents=order.cents)
    Customer.objects.filter(name=order.customer).update(spent_cents=F("spent_cents") + order.cents)


def send_parcel(number: str) -> None:
    """Send the parcel."""
    Parcel.objects.create(order=number)


def write_letter(number: str) -> None:
    """Ask the customer how it is."""
    Letter.objects.create(order=number)


def make_suggestion(number: str) -> None:
    """Tell the customer what else there is."""
    Suggestion.objects.create(order=number)
