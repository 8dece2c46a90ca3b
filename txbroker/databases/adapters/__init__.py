"""Databases and their drivers: the calls that a block of ``atomic`` needs of each."""
