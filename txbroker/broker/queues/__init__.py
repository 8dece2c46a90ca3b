"""What sessions ask of queues: declarations, messages, and what waits for them."""
