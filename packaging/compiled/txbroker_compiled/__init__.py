"""Modules compiled from the source of txbroker; ``journal/compiled.py`` imports them. Nothing else is here."""
