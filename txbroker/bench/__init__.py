"""``txbroker bench``: how fast a broker is and where the time goes, measured by the client's own code.

``docs/benchmarks.md`` says how to read the figures.
"""
