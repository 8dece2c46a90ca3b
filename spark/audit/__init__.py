"""Audits: what a data directory holds, proven from its bytes alone, on Spark. ``docs/spark.md`` says what is proven."""
