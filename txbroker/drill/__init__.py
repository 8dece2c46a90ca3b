"""A recovery drill kills a real broker under real load, again and again, and looks for everything it acknowledged.

``txbroker drill`` runs a drill. ``docs/drills.md`` says what a drill proves, and what it cannot.
"""
