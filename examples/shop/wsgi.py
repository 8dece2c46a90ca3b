"""The shop for a web server: ``gunicorn examples.shop.wsgi``."""

from __future__ import annotations

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "examples.shop.settings")

application = get_wsgi_application()
