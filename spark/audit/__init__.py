"""Audits prove on Spark, from its bytes alone, what a data directory holds. ``docs/spark.md`` says what is proven."""
