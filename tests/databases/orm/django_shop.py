"""A Django project of one file for tests: ``python -m tests.databases.orm.django_shop DATABASE BROKER ACTION…``.

DATABASE is ``sqlite:///PATH``, or PostgreSQL's URL. Each action does something and prints what came of it. It runs in a
process of its own: settings can be made once in a process.
"""

import contextlib
import os
import sys
import threading
import unittest

import django
import psycopg
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import IntegrityError, connection, connections, models, transaction
from django.db.transaction import TransactionManagementError
from psycopg.conninfo import conninfo_to_dict

from tests.databases.deaths.sigkill import die_at
from txbroker import Backlog, errors


def configure(url, address, **more):
    if url.startswith("sqlite:///"):
        database = {"ENGINE": "django.db.backends.sqlite3", "NAME": url.removeprefix("sqlite:///")}
    else:
        parts = conninfo_to_dict(url)
        database = {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": parts["dbname"],
            "USER": parts.get("user", ""),
            "HOST": parts.get("host", ""),
            "PORT": parts.get("port", ""),
        }
    settings.configure(
        DATABASES={"default": database},
        INSTALLED_APPS=["txbroker.databases.django"],
        TXBROKER={
            "url": address,
            "application": "shop",
            "wait": "commit",
            "max_bytes": 1000,
            "mode": "two-phase",
            "options": {"timeout": 10.0},
            **more,
        },
        USE_TZ=True,
    )
    django.setup()
    call_command("migrate", verbosity=0)
    call_command("migrate", verbosity=0)


def model():
    class Order(models.Model):
        number = models.IntegerField(primary_key=True)

        class Meta:
            app_label = "shop"
            db_table = "orders"

    if "orders" not in connection.introspection.table_names():
        with connection.schema_editor() as editor:
            editor.create_model(Order)
    return Order


LEAVING = {"mode": "outbox"}
MORE = {
    "outbox": {
        **LEAVING,
        "outbox_bytes": 2000,
        "max_backlog": {"rows": 3, "age": 60.0},
        "on_refused": "stop",
    },
    "die_leaving": LEAVING,
}
"""Further settings of actions."""


class Actions:
    def __init__(self, order, topic):
        self.order, self.topic = order, topic

    def send(self, text):
        from txbroker.databases.django import send

        send(self.topic, text.encode())

    def everything(self):
        """Commit, rollback, savepoints in all orders, and the refusals."""
        self.commits_and_rollbacks()
        self.savepoints()
        self.callbacks_and_receiving()
        self.without_autocommit()
        self.refusals()
        print(sorted(self.order.objects.values_list("number", flat=True)))
        print(self.values())

    def commits_and_rollbacks(self):
        with transaction.atomic():
            self.order.objects.create(number=1)
            self.send("1")
        with contextlib.suppress(ZeroDivisionError), transaction.atomic():
            self.order.objects.create(number=2)
            self.send("rolled back")
            raise ZeroDivisionError
        with transaction.atomic():
            self.order.objects.create(number=3)  # no message: a plain commit

    def savepoints(self):
        from txbroker.databases.django import waiting

        with transaction.atomic():
            self.send("a")
            for text, fails in (("dropped", True), ("b", False)):
                with contextlib.suppress(ZeroDivisionError), transaction.atomic():
                    self.order.objects.create(number=10 + fails)
                    with transaction.atomic():
                        self.send(text)
                    if fails:
                        raise ZeroDivisionError
            self.send("c")
            assert [message.value for message in waiting()] == [b"a", b"b", b"c"]
        with transaction.atomic(), transaction.atomic():  # the first one, and the only one, in a savepoint
            self.order.objects.create(number=4)
            self.send("d")
        with (
            contextlib.suppress(ZeroDivisionError),
            transaction.atomic(),
            transaction.atomic(savepoint=False),
        ):
            self.send("rolled back")
            raise ZeroDivisionError

    def callbacks_and_receiving(self):
        from txbroker.databases.django import receive, send

        called = []
        with transaction.atomic():
            transaction.on_commit(lambda: called.append(len(self.values())))
            self.send("e")
        assert called == [6], called  # it is there when the callbacks of the commit run
        with transaction.atomic():
            message = receive(self.topic, "group", timeout=10.0)
            send(self.topic, b"after " + message.value)

    def without_autocommit(self):
        transaction.set_autocommit(False)
        with transaction.atomic():
            self.send("by hand")
        transaction.commit()
        with transaction.atomic():
            self.send("rolled back by hand")
        transaction.rollback()
        transaction.set_autocommit(True)

    def refusals(self):
        from txbroker import atomic
        from txbroker.databases.django import broker, receive

        self.refused(errors.Misuse, "no transaction.atomic() is open", lambda: self.send("x"))
        self.refused(
            errors.Misuse,
            "Use `with transaction.atomic():`",
            lambda: atomic(connection, broker(), mode="two-phase"),
        )
        with transaction.atomic():
            self.send("x" * 900)
            self.refused(errors.BufferFull, "1000 are allowed", lambda: self.send("x" * 101))
            self.refused(TransactionManagementError, "forbidden", lambda: transaction.commit())
            with transaction.atomic():
                self.refused(errors.Misuse, "nested atomic()", lambda: receive(self.topic, "g"))
            transaction.set_rollback(True)
        with transaction.atomic():  # what was rolled back does not count
            self.send("y" * 101)

        def unknown_topic():
            from txbroker.databases.django import send

            with transaction.atomic():
                self.order.objects.create(number=99)
                send("no-such-topic", b"x")

        self.refused(errors.UnknownTopic, "", unknown_topic)

    def refused(self, kind, words, act):
        try:
            act()
        except kind as error:
            found = str(error)
        else:
            raise AssertionError(words)
        assert words in found, found

    def values(self):
        from txbroker.databases.django import broker

        return [message.value.decode()[:10] for message in broker().read(self.topic, 0, 0)]

    def taken_back(self):
        """Scheduled messages are taken back with the commit, or stay."""
        from txbroker.databases.django import broker, cancel, waiting

        first, second = (broker().send(self.topic, b"v", after=3600).scheduled for _ in range(2))
        with transaction.atomic():
            cancel(first)
            with contextlib.suppress(ZeroDivisionError), transaction.atomic():
                cancel(str(second))
                raise ZeroDivisionError
            assert [each.id for each in waiting()] == [first]
        states = [broker().scheduled(each).state for each in (first, second)]

        def again():
            with transaction.atomic():
                self.order.objects.create(number=1)
                cancel(second)
                cancel(first)

        self.refused(errors.NotScheduled, "taken back before", again)
        self.refused(errors.Misuse, "no transaction.atomic() is open", lambda: cancel(second))
        print(*states, broker().scheduled(second).state, self.order.objects.count())

    def refused_commit(self):
        """PostgreSQL: a constraint that only COMMIT checks."""
        with connection.cursor() as cursor:
            cursor.execute(
                "CREATE TABLE lines (of_order integer REFERENCES orders (number) DEFERRABLE INITIALLY DEFERRED)"
            )
        try:
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute("INSERT INTO lines VALUES (77)")
                self.send("x")
        except IntegrityError as error:
            print("IntegrityError", "neither rows nor messages" in error.__notes__[-1])
        with transaction.atomic():
            self.order.objects.create(number=1)
            self.send("1")
        print(self.values())

    def unknown(self):
        """PostgreSQL: the server ends the connection in COMMIT."""
        self.die_in_commit(lambda: None)

    def unknown_and_away(self):
        """And lets nobody in for a while: Django's own attempt to go on must not hide what happened."""
        name = connection.settings_dict["NAME"]
        server = psycopg.connect(
            **connection.get_connection_params() | {"dbname": "postgres"}, autocommit=True
        )

        def let_in(yes):
            server.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS {yes}')

        try:
            self.die_in_commit(lambda: let_in(False), lambda: let_in(True))
        finally:
            server.close()

    def die_in_commit(self, before, after=lambda: None):
        from tests.databases.deaths.sigkill import DIES_AT_COMMIT
        from txbroker.databases.django import broker

        with connection.cursor() as cursor:
            for statement in DIES_AT_COMMIT:
                cursor.execute(statement)
        try:
            with transaction.atomic():
                self.order.objects.create(number=1)
                self.send("1")
                before()
        except errors.OutcomeUnknown as error:
            after()
            print("OutcomeUnknown", broker().wait_outcome(error.xid, 20.0).name)
        print(self.order.objects.count(), self.values())

    def threads_and_forks(self):
        def work(start):
            for number in range(start, start + 5):
                with transaction.atomic():
                    self.order.objects.create(number=number)
                    self.send(str(number))
            connections.close_all()

        threads = [threading.Thread(target=work, args=(start,)) for start in (0, 100)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        connections.close_all()
        if (child := os.fork()) == 0:
            try:
                work(200)
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        work(300)
        print(sorted(map(int, self.values())) == sorted(self.order.objects.values_list("number", flat=True)))
        print(self.order.objects.count())

    def tests(self):
        """What happens in a TestCase."""
        from django.test import TestCase

        from txbroker.databases.django import waiting

        actions = self

        class Case(TestCase):
            def test_it(self):
                with self.captureOnCommitCallbacks(execute=True) as callbacks, transaction.atomic():
                    actions.send("never sent")
                assert len(callbacks) == 1
                assert callbacks[0].message.value == b"never sent"
                assert [message.value for message in waiting()] == [b"never sent"]

        suite = unittest.defaultTestLoader.loadTestsFromTestCase(Case)
        result = unittest.TextTestRunner().run(suite)
        assert result.wasSuccessful(), result.failures + result.errors
        print(self.values())

    def outbox(self):
        """Blocks that leave their messages in the database: commits, rollbacks, savepoints, and bounds."""
        from txbroker.databases.django.broker import broker, configuration

        assert configuration().terms.outbox == (
            "outbox", 2000, Backlog(rows=3, age=60.0), "stop"
        ), configuration()  # fmt: skip
        with transaction.atomic():
            self.order.objects.create(number=1)
            self.send("1")
        with contextlib.suppress(ZeroDivisionError), transaction.atomic():
            self.send("rolled back")
            raise ZeroDivisionError
        with transaction.atomic():
            self.send("a")
            with contextlib.suppress(ZeroDivisionError), transaction.atomic():
                self.send("dropped")
                raise ZeroDivisionError
            with transaction.atomic():
                self.send("b")
        print(self.values())
        broker().close()  # which deletes the rows and releases the stream
        with connection.cursor() as cursor:
            cursor.execute("SELECT COUNT(*) FROM txbroker_outbox")
            print(cursor.fetchone())

    def settings(self):
        """What the settings may not say."""
        from django.core.exceptions import ImproperlyConfigured

        from txbroker.databases.django.broker import configuration

        for name, value, kind in (
            ("max_backlog", {"rows": 1, "lines": 2}, ImproperlyConfigured),
            ("max_backlog", 5, ImproperlyConfigured),
            ("max_backlog", {"rows": "many"}, errors.WrongType),
            ("max_backlog", {"age": -1}, errors.WrongValue),
            ("mode", "both", errors.WrongValue),
            ("outbox_bytes", 0, errors.WrongValue),
            ("on_refused", "drop", errors.WrongValue),
            ("modes", "auto", ImproperlyConfigured),
        ):
            before = dict(settings.TXBROKER)
            settings.TXBROKER[name] = value
            try:
                configuration()
            except kind as error:
                print(name, name in str(error))
            settings.TXBROKER.clear()
            settings.TXBROKER.update(before)

    def resolve(self):
        try:
            call_command("txbroker_resolve")
        except CommandError as error:
            print(error)

    def die_leaving(self, moment):
        self.die(moment)

    def die(self, moment):
        """One transaction, killed at a moment."""
        from txbroker.databases.django.transaction_messages import DjangoDatabase

        die_at(moment, DjangoDatabase)
        with transaction.atomic():
            self.order.objects.create(number=7)
            self.send("7")


def main(url, address, topic, action, *arguments):
    configure(url, address, **MORE.get(action, {}))
    actions = Actions(model(), topic)
    getattr(actions, action)(*arguments)
    from txbroker.databases.django.broker import close

    close()
    connections.close_all()


if __name__ == "__main__":
    main(*sys.argv[1:])
