"""The benchmark of Spark measures reads, writes and audits beside Spark's own sources and sinks."""
