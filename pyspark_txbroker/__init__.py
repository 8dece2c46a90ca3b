"""Makes ``format("txbroker")`` known to Spark, which imports every package whose name begins with ``pyspark_``.

It imports them all when a session first uses a data source in Python, so an error here would take away those of others
too: where packages of the extra are missing this source is left out, with a warning.
"""

import warnings

try:
    from spark import TxBrokerDataSource as DefaultSource
except ImportError as error:
    warnings.warn(f"Spark does not find format('txbroker') by itself: {error}", stacklevel=1)
else:
    __all__ = ["DefaultSource"]
