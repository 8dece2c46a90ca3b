"""A shop in Django, whose tasks are Celery's and commit with its rows: see README.md."""
