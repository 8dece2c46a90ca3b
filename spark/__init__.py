"""Apache Spark reads the committed log, writes to it exactly once, and audits it. ``docs/spark.md`` tells how."""

from spark.source import TxBrokerDataSource

__all__ = ["TxBrokerDataSource"]
