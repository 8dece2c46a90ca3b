"""What the clients on an event loop share."""
