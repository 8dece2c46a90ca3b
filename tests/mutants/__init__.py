"""Faults made on purpose, each of which the tests of its subject must find."""
