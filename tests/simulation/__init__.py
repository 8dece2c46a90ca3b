"""The deterministic simulation of the whole broker: ``python -m tests.simulation --help``, ``docs/recovery.md``.

One machine with a disk in memory, a clock that is moved by hand and threads that stop before every call on files;
clients that speak the wire's bytes; a power switch; and a model that is told requests and answers, and judges.
"""
