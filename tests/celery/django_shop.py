"""The application of the tests with Django: ``python -m tests.celery.django_shop COMMAND…`` runs Django's commands."""

import os
import sys
import time

import django
from celery import Celery
from django.conf import settings

settings.configure(
    INSTALLED_APPS=["txbroker.databases.django"],
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": os.environ["SHOP_DATABASE"],
            "OPTIONS": {"timeout": 30, "transaction_mode": "IMMEDIATE"},
        }
    },
    TXBROKER={"url": os.environ["SHOP_BROKER"], "application": "shop", "wait": "commit"},
    USE_TZ=True,
)
django.setup()

from django.db import connection, transaction  # noqa: E402 - once it is set up

from txbroker.celery import TransactionalTask  # noqa: E402

app = Celery("django_shop", amqp="txbroker.celery:TransactionalAMQP")
app.conf.update(
    broker_url=os.environ["SHOP_AMQP"],
    broker_connection_retry_on_startup=True,
    result_backend="file://" + os.environ["SHOP_RESULTS"],
    worker_hijack_root_logger=False,
)


def note(task, id):
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO effects VALUES (%s, %s)", (task, id))


@app.task(base=TransactionalTask, bind=True, name="order", return_after=0.05)
def order(self, id):
    note("order", id)
    bill.delay(id)
    self.tx.celery(app).send_task("bill", (id,))
    try:
        with transaction.atomic():
            bill.delay("dropped")
            raise KeyError
    except KeyError:
        pass
    if self.request.retries == 0:
        raise self.retry(countdown=0)
    time.sleep(float(os.environ.get("SHOP_PAUSE", "0")))


@app.task(base=TransactionalTask, name="bill")
def bill(id):
    note("bill", id)


def send():
    """Send as a view does."""
    with transaction.atomic():
        note("view", "a")
        order.delay("a")
    try:
        with transaction.atomic():
            note("view", "b")
            order.delay("b")
            raise KeyError
    except KeyError:
        pass
    with transaction.atomic():
        try:
            with transaction.atomic():
                order.delay("c")
                raise KeyError
        except KeyError:
            pass
        note("view", "c")


if __name__ == "__main__":
    if sys.argv[1] == "send":
        send()
    else:
        from django.core.management import execute_from_command_line

        execute_from_command_line(sys.argv)
