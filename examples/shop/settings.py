"""The settings of the shop. What differs from machine to machine comes from the environment."""

from __future__ import annotations

import os

from psycopg.conninfo import conninfo_to_dict

_database = conninfo_to_dict(os.environ.get("SHOP_DATABASE", "postgresql:///shop"))

SECRET_KEY = os.environ.get("SHOP_SECRET_KEY", "known to all, as this is an example")
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
ROOT_URLCONF = "examples.shop.urls"
USE_TZ = True

INSTALLED_APPS = [
    "txbroker.databases.django",  # its migration makes the tables that decide
    "examples.shop.orders",
]
MIDDLEWARE = [
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
]
TEMPLATES = [{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}]

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"console": {"class": "logging.StreamHandler"}},
    "loggers": {"django": {"handlers": ["console"], "level": "WARNING"}},  # why a request has failed
}

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": _database.get("dbname", ""),
        "HOST": _database.get("host", ""),
        "PORT": _database.get("port", ""),
        "USER": _database.get("user", ""),
        "PASSWORD": _database.get("password", ""),
        "CONN_MAX_AGE": None,
        "CONN_HEALTH_CHECKS": True,  # after a restart of PostgreSQL, a request opens a new connection
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# The broker's own protocol, for transactions.
TXBROKER = {
    "url": os.environ.get("SHOP_BROKER", "tcp:127.0.0.1:7654"),
    "application": "shop",
    "options": {
        "timeout": 5.0
    },  # seconds that a request waits for a broker that is away, if it needs its answer
}

# AMQP, for Celery itself.
CELERY_BROKER_URL = os.environ.get("SHOP_AMQP", "amqp://guest:guest@127.0.0.1:5672//")
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_TASK_IGNORE_RESULT = True
