"""The settings of the shop, but for how it sends tasks."""

from __future__ import annotations

from examples.shop.settings import *  # noqa: F403 - all but what follows

ROOT_URLCONF = "examples.shop.naive.urls"

# As careful as Celery is by itself: a task counts as sent when the broker has confirmed it, and is sent again for some
# seconds while the broker is away.
CELERY_BROKER_TRANSPORT_OPTIONS = {"confirm_publish": True}
CELERY_TASK_PUBLISH_RETRY_POLICY = {
    "max_retries": 20,
    "interval_start": 0.0,
    "interval_step": 0.1,
    "interval_max": 0.5,
}
