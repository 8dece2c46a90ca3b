"""The clients' tests are collected where the clients are installed, which is not here: suites.py runs them there."""

collect_ignore = ["test_clients.py"]
