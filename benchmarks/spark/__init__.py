"""What Spark's part is worth: reads, writes and audits, beside Spark's own ways."""
