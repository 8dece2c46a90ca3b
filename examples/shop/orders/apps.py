"""The application ``examples.shop.orders``."""

from __future__ import annotations

from django.apps import AppConfig


class OrdersConfig(AppConfig):
    """Orders, and what is done for them."""

    name = "examples.shop.orders"
    label = "orders"
    default_auto_field = "django.db.models.BigAutoField"
