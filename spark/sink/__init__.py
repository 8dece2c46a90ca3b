"""Writing to the broker exactly once: rows, branches, registers, decisions."""
