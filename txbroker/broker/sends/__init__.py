"""Sends and deliveries: messages from producers and from streams, each stored once."""
