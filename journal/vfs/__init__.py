"""The operating system: files, open files, locks, clocks, the C library."""
