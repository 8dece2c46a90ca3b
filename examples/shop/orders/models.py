"""The rows of the shop.

What is done for an order has a table for each step, without a unique key on the order and without a foreign key: only
the transactions prevent a second charge, and one for an order that was never placed.
"""

from __future__ import annotations

from django.db import models


class Customer(models.Model):
    """A customer, and the sum of all charges."""

    name = models.CharField(max_length=40, primary_key=True)
    spent_cents = models.BigIntegerField(default=0)


class Product(models.Model):
    """A product: its price, and how many there are."""

    name = models.CharField(max_length=40, primary_key=True)
    cents = models.IntegerField()
    stock = models.IntegerField()


class Order(models.Model):
    """An order. Its number is the browser's choice, so that the same form sent twice is one order."""

    number = models.UUIDField(primary_key=True)
    customer = models.CharField(max_length=40)
    product = models.CharField(max_length=40)
    cents = models.IntegerField()
    placed_at = models.DateTimeField(auto_now_add=True, db_index=True)


class Step(models.Model):
    """What a task has done for an order."""

    order = models.UUIDField(db_index=True)
    done_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        abstract = True


class Charge(Step):
    """The customer has paid."""

    customer = models.CharField(max_length=40)
    cents = models.IntegerField()


class Parcel(Step):
    """The parcel has left the house."""


class Letter(Step):
    """The customer was asked how it is."""


class Suggestion(Step):
    """The customer was told what else there is. Nobody minds if that gets lost, or comes twice."""
