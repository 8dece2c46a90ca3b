"""Sending: batches, queues of partitions, reports."""
