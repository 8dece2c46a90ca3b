"""Recovery drills: a real broker under real load, killed again and again, and everything it acknowledged looked for.

``txbroker drill`` runs one. ``docs/drills.md`` says what a drill proves, and what it cannot.
"""
