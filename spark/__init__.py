"""Apache Spark reads the committed log, writes to it exactly once, and audits it. ``docs/spark.md`` tells how."""

try:
    from spark.data_source import TxBrokerDataSource
except ImportError as error:
    if (error.name or "").partition(".")[0] not in ("pyspark", "pyarrow", "numpy", "pandas"):
        raise
    raise ImportError(
        f"spark needs packages that are not installed here ({error}): pip install 'txbroker[spark]'"
    ) from error

__all__ = ["TxBrokerDataSource"]
