"""The benchmarks of the broker show each figure beside a limit of the machine that was measured in the same run."""
