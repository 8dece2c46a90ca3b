"""The application of the tests: its worker writes rows, each with a task's id, into tables without any unique key."""

import os
import sqlite3
import time
from contextlib import closing
from functools import partial
from pathlib import Path

import psycopg
from celery import Celery
from celery.exceptions import Ignore, Reject

import txbroker
from txbroker.celery import TransactionalTask

app = Celery("shop", amqp="txbroker.celery:TransactionalAMQP")
task = partial(app.task, shared=False)  # this module is loaded again for each test
app.conf.update(
    broker_url=os.environ.get("SHOP_AMQP", "amqp://guest:guest@127.0.0.1:1//"),
    txbroker_url=os.environ.get("SHOP_BROKER", "tcp:127.0.0.1:1"),
    broker_connection_retry_on_startup=True,
    broker_connection_timeout=5,
    worker_prefetch_multiplier=int(os.environ.get("SHOP_PREFETCH", "4")),
    worker_hijack_root_logger=False,
    task_default_queue=os.environ.get("SHOP_QUEUE", "celery"),
    worker_cancel_long_running_tasks_on_connection_loss=False,
)
if os.environ.get("SHOP_RESULTS"):
    app.conf.result_backend = "file://" + os.environ["SHOP_RESULTS"]
DATABASE = os.environ.get("SHOP_DATABASE", "")


def open_database():
    """A connection to the database of the tests: PostgreSQL's by its URL, or SQLite's file."""
    if DATABASE.startswith("postgresql"):
        return psycopg.connect(DATABASE)
    return sqlite3.connect(DATABASE, timeout=30)


def make_tables():
    with closing(open_database()) as database:
        txbroker.create_decision_table(database)
        database.execute("CREATE TABLE effects (task TEXT, id TEXT)")
        database.commit()


def effects(task):
    """The ids of the tasks of that name that have had their effect, as often as they have had it."""
    with closing(open_database()) as database:
        return sorted(id for name, id in database.execute("SELECT task, id FROM effects") if name == task)


class InDatabase(TransactionalTask):
    """A task with the database of the tests."""

    abstract = True
    return_after = 0.05

    def database(self):
        return open_database()

    def note(self, id):
        mark = "%s" if DATABASE.startswith("postgresql") else "?"
        self.connection.execute(f"INSERT INTO effects VALUES ({mark}, {mark})", (self.name, id))


def told(name):
    """Whether this is the first time that a task is here, of all processes."""
    try:
        (Path(os.environ["SHOP_MARKS"]) / name).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


@task(base=InDatabase, bind=True, name="order")
def order(self, id):
    self.note(id)
    bill.delay(id)
    time.sleep(float(os.environ.get("SHOP_PAUSE", "0")))
    return id


@task(base=InDatabase, bind=True, name="bill")
def bill(self, id):
    self.note(id)
    return id


@task(base=InDatabase, bind=True, name="fails_once")
def fails_once(self, id):
    self.note(id)
    bill.delay(id)
    if told(f"fails_once-{id}"):
        raise ValueError("the first time")


@task(base=InDatabase, bind=True, name="fails", acks_on_failure_or_timeout=True)
def fails(self, id):
    self.note(id)
    bill.delay(id)
    told(f"fails-{id}")
    raise ValueError("always")


@task(base=InDatabase, bind=True, name="retries", max_retries=5)
def retries(self, id):
    self.note(id)
    bill.delay(id)
    if self.request.retries < 2:
        raise self.retry(countdown=0.1)


@task(base=InDatabase, bind=True, name="autoretries", autoretry_for=(KeyError,), retry_backoff=False,
          default_retry_delay=0)  # fmt: skip
def autoretries(self, id):
    self.note(id)
    if told(f"autoretries-{id}"):
        raise KeyError(id)


@task(base=InDatabase, bind=True, name="rejects")
def rejects(self, id):
    self.note(id)
    raise Reject("not wanted", requeue=told(f"rejects-{id}"))


@task(base=InDatabase, bind=True, name="ignores")
def ignores(self, id):
    self.note(id)
    bill.delay(id)
    raise Ignore


@task(base=InDatabase, bind=True, name="replaces")
def replaces(self, id):
    self.note(id)
    raise self.replace(bill.s(id))


@task(base=TransactionalTask, bind=True, name="only_sends")
def only_sends(self, id):
    self.tx.celery(app).send_task("bill", (id,))


@task(name="plain")
def plain(id):
    with closing(open_database()) as database:
        database.execute("INSERT INTO effects VALUES ('plain', ?)", (id,))
        database.commit()
    return id


@task(name="gather")
def gather(ids):
    return ids
