"""Systems that people would pick instead, as servers and clients of one's own. See docs/benchmarks.md."""
