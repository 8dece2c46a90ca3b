"""The peers: systems that could be used instead, with their servers and clients. See docs/benchmarks.md."""
