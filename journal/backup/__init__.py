"""Backups: what a data directory held at one moment, in a store of objects, and what begins when one is restored."""
