"""The Celery application: ``celery -A examples.shop worker``."""

from __future__ import annotations

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "examples.shop.settings")

# The second argument is all: with it delay() joins the transaction that is open.
app = Celery("shop", amqp="txbroker.celery:TransactionalAMQP")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
