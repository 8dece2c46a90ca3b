"""Queues in the clients: what is declared, published, taken, acknowledged and returned."""
