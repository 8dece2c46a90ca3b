"""Connections: their protocol, what is known of their peers, and the bounds on what peers can make the broker hold."""
