"""The Celery application, as Celery's own documentation has it."""

from __future__ import annotations

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "examples.shop.naive.settings")

app = Celery("naive", include=["examples.shop.naive.tasks"])
app.config_from_object("django.conf:settings", namespace="CELERY")
