"""The harness of the benchmarks: processes under measurement, the load generator, and the limits of the machine."""
