"""Django's command ``txbroker_resolve``: ends what programs have left, as their database decided."""

from __future__ import annotations

import time
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import DEFAULT_DB_ALIAS, connections

from txbroker import errors
from txbroker.databases.django.broker import broker
from txbroker.databases.django.transaction_messages import connector
from txbroker.databases.resolver import Resolver, goes_on


class Command(BaseCommand):
    """The resolver of :mod:`txbroker.databases.resolver`, with Django's settings."""

    help = (
        "End transactions that programs left prepared at the broker, as their database decided, and deliver the "
        "messages that they left in the database. Once, or --watch."
    )

    def add_arguments(self, parser: Any) -> None:
        """The options."""
        parser.add_argument("--database", default=DEFAULT_DB_ALIAS, help="an alias of settings.DATABASES")
        parser.add_argument("--watch", action="store_true", help="go on until interrupted")
        parser.add_argument(
            "--interval", type=float, default=10.0, help="seconds between passes with --watch"
        )

    def handle(self, *args: Any, **options: Any) -> None:  # noqa: ARG002
        """Make one pass, or pass after pass."""
        with Resolver(connector(connections[options["database"]]), broker()) as resolver:
            while True:
                try:
                    self.stdout.write(resolver.resolve(patient=options["watch"]).sentence)
                except (errors.StorageUnavailable, errors.OutcomeUnknown, errors.RequestRefused) as error:
                    if not options["watch"] or not goes_on(error):
                        raise CommandError(f"{type(error).__name__}: {error}") from error
                    self.stderr.write(f"{error}; tried again in {options['interval']:g} s")
                if not options["watch"]:
                    return
                time.sleep(options["interval"])
