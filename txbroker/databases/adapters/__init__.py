"""Databases and their drivers: what a block of ``atomic`` needs of each."""
