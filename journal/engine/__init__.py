"""The engine: the cycle accept, write, force, publish; and the housekeeping beside it."""
