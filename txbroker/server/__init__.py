"""The process around the broker: connections, threads, settings, service."""
