"""The benchmark of holds: how long the largest requests keep the reactor from all others."""
