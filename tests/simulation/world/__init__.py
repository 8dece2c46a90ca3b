"""The world of the simulation: the broker on a machine with a disk, threads and a network, and its audits."""
