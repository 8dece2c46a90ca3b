"""The threads beside the reactor: those that write, force, flush and scrub, and how work gets to them and back."""
