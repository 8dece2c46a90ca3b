"""The application ``txbroker.databases.django``: the label of its migration is ``txbroker``."""

from __future__ import annotations

from django.apps import AppConfig


class TxbrokerConfig(AppConfig):
    """Messages in Django's transactions. ``settings.TXBROKER`` is read when the first message is sent."""

    name = "txbroker.databases.django"
    label = "txbroker"
    verbose_name = "txbroker"
